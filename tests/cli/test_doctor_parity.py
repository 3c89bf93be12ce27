"""`twofold doctor --parity`: the whole product on a small model, interrupted and resumed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from twofold import cli
from twofold.engine.parity import variants
from twofold.engine.parity.record import Record
from twofold.kernels.cpu import missing_reason

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")


def _doctor(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["twofold", "doctor", *arguments])
    return cli.main()


def test_a_whole_run_may_be_interrupted(
    tiny_checkpoint: Path,
    isolated_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(variants, "THREADS", (1, 2))
    monkeypatch.setattr(variants, "SHAPES", {name: variants.SHAPES[name] for name in ("none", "tree of 8")})
    monkeypatch.setenv("TWOFOLD_CPU_ISA", "generic")
    command = (str(tiny_checkpoint), "--parity", "--full", "--prompts", "2", "--tokens", "4", "--format", "json")
    add, seen = Record.add, []

    def interrupted(record: Record, found: object) -> None:
        add(record, found)  # type: ignore[arg-type]
        seen.append(found)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Record, "add", interrupted)
        assert _doctor(patch, *command) == 130
    told = capfd.readouterr()
    assert told.out == "" and "3 of 8 settings are done; the same command goes on" in told.err
    assert "1 of 8 settings equal" in told.err and "left" in told.err
    assert len(list((isolated_home / "state" / "parity").iterdir())) == 1
    assert _doctor(monkeypatch, *command) == 0
    told = capfd.readouterr()
    assert "goes on where it stopped: 3 of 8" in told.err and "4 of 8 settings equal" in told.err
    assert "\n3 of 8 settings equal" not in told.err
    document = json.loads(told.out)
    assert document["ok"] is True and (document["prompts"], document["tokens_per_answer"]) == (2, 4)
    found = document["variants"]
    assert [(one["drafts"], one["threads"], one["prefill_chunk"]) for one in found[:3]] == [
        ("none", 1, 32), ("none", 1, 256), ("none", 2, 32)
    ]  # fmt: skip
    assert len(found) == 8 and all(one["equal"] and one["tokens"] == 2 * 2 * 4 for one in found)
    assert list((isolated_home / "state" / "parity").iterdir()) == []


def test_sizes_are_for_parity_alone(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for option in ("--prompts", "--tokens"):
        assert _doctor(monkeypatch, option, "3") == 2
        assert f"{option} is for --parity" in capfd.readouterr().err
