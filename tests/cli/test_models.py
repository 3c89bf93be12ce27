"""`twofold models`: list, fetch, remove and clean up, through the command line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.profiles.locks import exclusive
from twofold.profiles.settings import checkpoints_dir
from twofold.profiles.sources.wheel import models_dir


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_app(lambda: build_app()(["models", *arguments]))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def checkpoint(name: str, *, bits: int = 6, kl: object = None) -> Path:
    folder = checkpoints_dir() / name
    folder.mkdir(parents=True)
    measured = {} if kl is None else {"rows": {"verifier": {"kl": kl}}}
    quantization = {"quant_method": "twofold", "version": 1, "residual": {"bits": bits}, "measured": measured}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": quantization}))
    (folder / "dense.safetensors").write_bytes(bytes(3 << 20))
    return folder


def unfinished(name: str) -> Path:
    folder = checkpoints_dir() / f"{name}.partial"
    (folder / "streams").mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    return folder


def cached_source(smollm2_gguf: Path) -> Path:
    models_dir().mkdir(parents=True)
    target = models_dir() / smollm2_gguf.name
    os.symlink(smollm2_gguf, target)
    return target


@pytest.mark.parametrize("command", ["ls", "list"])
def test_an_empty_list(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, err = _run(capsys, command)
    assert (code, out) == (0, "")
    assert "nothing is kept" in err and "smollm2" in err


def test_list_shows_sources_checkpoints_and_what_is_unfinished(
    capsys: pytest.CaptureFixture[str], smollm2_gguf: Path
) -> None:
    cached_source(smollm2_gguf)
    checkpoint("small-r6-s0", kl={"value": 0.00113, "unit": "nats", "source": "measured", "by": "eval"})
    checkpoint("other-r4-s0", bits=4)
    unfinished("half-r6-s0")
    damaged = checkpoint("damaged-r6-s0")
    (damaged / "config.json").write_text("{")
    code, out, _ = _run(capsys, "ls")
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert code == 0
    assert set(rows) == {"smollm2", "small-r6-s0", "other-r4-s0", "half-r6-s0.partial", "damaged-r6-s0"}
    assert "6 bits" in rows["small-r6-s0"] and "0.00113" in rows["small-r6-s0"] and "3.0 MiB" in rows["small-r6-s0"]
    assert "4 bits" in rows["other-r4-s0"] and "unknown" in rows["other-r4-s0"]
    assert "damaged" in rows["damaged-r6-s0"].split("unknown")[-1]
    assert "unfinished" in rows["half-r6-s0.partial"]


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint("small-r6-s0")
    code, out, _ = _run(capsys, "ls", "--format", "json")
    (model,) = json.loads(out)["models"]
    assert code == 0
    assert (model["name"], model["kind"], model["residual_bits"]) == ("small-r6-s0", "checkpoint", 6)
    assert model["size"]["value"] > 3 << 20 and model["size"]["source"] == "measured"
    assert model["kl"]["source"] == "unknown" and model["kl"]["value"] is None


def test_rm_asks_and_removes_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    gone, stays = checkpoint("small-r6-s0"), checkpoint("small-r7-s0", bits=7)
    code, out, err = _run(capsys, "rm", "small-r6-s0")
    assert code == 2 and "not confirmed" in err and gone.exists() and out == ""
    code, out, _ = _run(capsys, "rm", "small-r6-s0", "--yes")
    assert code == 0 and "removed checkpoint small-r6-s0" in out
    assert not gone.exists() and stays.exists()


def test_rm_of_a_source_that_is_a_link_keeps_the_target(capsys: pytest.CaptureFixture[str], smollm2_gguf: Path) -> None:
    target = cached_source(smollm2_gguf)
    code, _, _ = _run(capsys, "rm", "smollm2", "--yes")
    assert code == 0 and not target.is_symlink() and smollm2_gguf.exists()


@pytest.mark.parametrize("name", ["nothing", "..", "../models", "/etc", "."])
def test_rm_knows_only_names_of_the_list(capsys: pytest.CaptureFixture[str], name: str) -> None:
    folder = checkpoint("small-r6-s0")
    code, _, err = _run(capsys, "rm", name, "--yes")
    assert code == 1 and "twofold models ls" in err and folder.exists()


def test_rm_leaves_the_hub_clients_cache_alone(capsys: pytest.CaptureFixture[str], isolated_home: Path) -> None:
    folder = isolated_home / "hf" / "hub" / "models--org--name" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"")
    code, out, _ = _run(capsys, "ls")
    assert code == 0 and "org/name" in out
    code, _, err = _run(capsys, "rm", "org/name", "--yes")
    assert code == 1 and "hf cache rm" in err and folder.exists()


def test_rm_refuses_what_is_being_quantised(capsys: pytest.CaptureFixture[str]) -> None:
    folder = unfinished("half-r6-s0")
    with exclusive(folder.with_name(".half-r6-s0.lock"), "quantising"):
        code, _, err = _run(capsys, "rm", "half-r6-s0.partial", "--yes")
    assert code == 1 and "another process" in err and folder.exists()


def test_prune_removes_leftovers_and_nothing_else(capsys: pytest.CaptureFixture[str], smollm2_gguf: Path) -> None:
    source, whole = cached_source(smollm2_gguf), checkpoint("small-r6-s0")
    partial, half = models_dir() / ".partial-abc", unfinished("half-r6-s0")
    partial.mkdir()
    (partial / "x").write_bytes(bytes(100))
    replaced = checkpoints_dir() / ".small-r6-s0.old"
    shutil.copytree(whole, replaced)
    only_copy = checkpoints_dir() / ".lost-r6-s0.old"
    shutil.copytree(whole, only_copy)
    mine = checkpoints_dir() / "notes.partial"
    mine.mkdir()
    (mine / "letter.txt").write_text("keep me")
    code, out, err = _run(capsys, "prune", "--dry-run")
    assert code == 0 and "would remove 3" in out and "half-r6-s0.partial" in err
    assert partial.exists() and half.exists()
    code, out, _ = _run(capsys, "prune", "--yes")
    assert code == 0 and out.count("removed ") == 3
    assert not partial.exists() and not half.exists() and not replaced.exists()
    assert source.is_symlink() and whole.exists() and only_copy.exists() and (mine / "letter.txt").exists()
    assert "nothing to remove" in _run(capsys, "prune", "--yes")[1]


def test_prune_keeps_what_a_process_works_on(capsys: pytest.CaptureFixture[str]) -> None:
    half, partial = unfinished("half-r6-s0"), models_dir() / ".partial-abc"
    partial.mkdir(parents=True)
    with (
        exclusive(half.with_name(".half-r6-s0.lock"), "quantising"),
        exclusive(models_dir() / ".x.gguf.lock", "fetching"),
    ):
        code, out, err = _run(capsys, "prune", "--yes")
    assert code == 0 and "nothing to remove" in out and "being quantised" in err
    assert half.exists() and partial.exists()


def test_pull_dry_run_prints_the_cost(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "pull", "smollm2", "--dry-run")
    assert code == 0 and "88.6 MiB" in out and "reported" in out and "disk free" in out
    code, out, _ = _run(capsys, "pull", "smollm2", "--dry-run", "--format", "json")
    cost = json.loads(out)
    assert cost["download"] == {"value": 92_871_040, "unit": "B", "source": "reported", "by": cost["download"]["by"]}
    assert cost["disk"]["value"] == 92_871_040 + 98_362_432
    assert not models_dir().exists()


def test_pull_without_a_terminal_needs_yes(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _run(capsys, "pull", "smollm2")
    assert code == 2 and "twofold models pull smollm2 --yes" in err and not models_dir().exists()


def test_pull_of_what_is_there_moves_nothing(capsys: pytest.CaptureFixture[str], smollm2_gguf: Path) -> None:
    target = cached_source(smollm2_gguf)
    code, out, err = _run(capsys, "pull", "smollm2")
    assert code == 0 and out.strip() == str(target) and "already on this disk" in err


def test_pull_refuses_early_when_the_disk_is_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    from twofold.profiles.sources import aliases

    huge = dataclasses.replace(aliases.SMOLLM2, file_bytes=1 << 60)
    monkeypatch.setitem(aliases.ALIASES, "smollm2", huge)
    code, _, err = _run(capsys, "pull", "smollm2", "--yes")
    assert code == 1 and "not enough disk" in err and "TWOFOLD_HOME" in err and not models_dir().exists()


def test_pull_of_an_unreachable_hub_model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for options in ([], ["--yes"]):
        code, out, err = _run(capsys, "pull", "org/name", *options)
        assert code == 1 and out == "" and "the Hub cannot be reached" in err and "hint:" in err
    code, out, _ = _run(capsys, "pull", "org/name", "--dry-run")
    assert code == 0 and "unknown" in out
