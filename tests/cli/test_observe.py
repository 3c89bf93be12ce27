"""What a session leaves: recorded on a healthy end and on an interrupt, not where it failed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twofold.cli import observe
from twofold.cli.launch import Launched
from twofold.cli.observe import keeping_session, make_record, speeds_of
from twofold.engine.session.tally import Tally
from twofold.kernels.cpu import missing_reason
from twofold.profiles.session_store import read_sessions, sessions_path

CommandLine = Callable[..., int]
GREEDY = ("--temp", "0", "--max-tokens", "20")


def _launched(session: Any, checkpoint: Path) -> Launched:
    engine = session.engine
    return Launched(engine, session.tokenizer, session.template, engine.plan, engine.spec, checkpoint)


def test_a_chat_leaves_one_record(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("chat", *GREEDY, stdin=b"hello\n/reset\nagain\n/bye\n") == 0
    (found,) = read_sessions()
    assert (found.command, found.ending, found.model, found.answers) == ("chat", "end", "tiny", 2)
    assert (found.context_tokens, found.residual_bits, found.kv, found.threads) == (512, 6, ("f16", "f16"), 1)
    assert found.isa == "naive" and found.tokens_per_check == 1.0 and found.checks == 40
    assert found.decode is not None and found.decode.n == 2 and found.decode.tokens == 40
    assert found.first_token_s is not None and found.first_token_s > 0
    assert 20 < found.filled_tokens < 120
    assert found.allocated["kv_cache"] == found.planned["kv_cache"] > 0
    assert found.peak_mib is None or 20 < found.peak_mib < 4096
    assert found.process_mib is None or found.process_mib < (found.peak_mib or 0)
    text = sessions_path().read_text()
    assert "hello" not in text and "again" not in text


def test_a_run_leaves_one_too(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("run", "tiny", "hello", *GREEDY) == 0
    assert [one.command for one in read_sessions()] == ["run"]


def test_the_setting_turns_it_off(
    command_line: CommandLine, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOFOLD_SESSIONS", "0")
    assert command_line("run", "tiny", "hello", *GREEDY) == 0
    assert read_sessions() == ()


def test_a_failed_session_leaves_nothing(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("chat", *GREEDY, stdin=b"hello\n/nonsense\n") == 2
    assert command_line("chat", *GREEDY, stdin=b"") == 0  # and neither does one without an answer
    assert read_sessions() == ()


def test_an_interrupted_session_leaves_what_it_had(start_command: Callable[..., Any]) -> None:
    process = start_command("run", "tiny", "hello", "--temp", "0", "--max-tokens", "400")
    assert process.stdout.read(1)  # it answers
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    (found,) = read_sessions()
    assert found.ending == "interrupted" and 0 < found.checks < 400


def test_a_damaged_engine_is_reported_loudly(
    tiny_checkpoint: Any, tiny_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    launched = _launched(tiny_session, tiny_checkpoint)
    launched.engine.parts.body.buffers.append(launched.engine.parts.body.buffers[0])
    with keeping_session(launched, tiny_session, "chat"):
        pass
    shown = capsys.readouterr().err
    assert "activations" in shown and "dry run" in shown


def test_a_peak_far_above_the_plan_is_reported(
    tiny_checkpoint: Any, tiny_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    launched = _launched(tiny_session, tiny_checkpoint)
    measured = {"peak_mib": 100.0 + observe.PEAK_BOUND_MIB + 1, "answers": 1}
    observe.warn_of_peak(make_record(launched, "chat", "end", measured))
    assert "165 MiB, planned were 100 MiB" in capsys.readouterr().err
    observe.warn_of_peak(make_record(launched, "chat", "end", {"peak_mib": 120.0}))
    observe.warn_of_peak(make_record(launched, "chat", "end", {}))
    assert capsys.readouterr().err == ""


def test_a_record_names_no_folder(tiny_checkpoint: Any, tiny_session: Any) -> None:
    launched = _launched(tiny_session, tiny_checkpoint)
    plan = launched.plan.model_copy(update={"model": "/home/jane/secret folder/model.gguf"})
    found = make_record(replace(launched, plan=plan), "chat", "end", {})
    document = json.loads(found.model_dump_json())
    assert document["model"] == "model.gguf"
    assert str(tiny_checkpoint) not in found.model_dump_json() and "/" not in found.model_dump_json()


def test_few_tokens_give_no_speed() -> None:
    tally = Tally(answers=1, tokens=15, checks=15, decode_seconds=1.0, computed_tokens=15, prefill_seconds=1.0)
    found = speeds_of(tally)
    assert found["decode"] is None and found["prefill"] is None and found["tokens_per_check"] == 1.0
    assert speeds_of(Tally())["tokens_per_check"] is None


@pytest.mark.skipif(missing_reason() is not None, reason="plans are for the native kernels")
def test_the_next_fit_is_better_by_a_session(
    command_line: CommandLine,
    tiny_checkpoint: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def process() -> dict[str, Any]:
        capfd.readouterr()
        assert command_line("fit", str(tiny_checkpoint), "--ctx", "512", "--format", "json") in (0, 3)
        found: dict[str, Any] = json.loads(capfd.readouterr().out)["memory"]["ram"]["process_mib"]
        return found

    assert process()["source"] == "reasoned"
    monkeypatch.setenv("TINY_KERNELS", "cpu")
    assert command_line("run", "tiny", "hello", *GREEDY) == 0
    if read_sessions()[0].process_mib is None:
        pytest.skip("this system does not tell what is resident")
    calibrated = process()
    assert calibrated["source"] == "measured" and calibrated["n"] == 1
    assert calibrated["low"] < calibrated["value"] < calibrated["high"]
    capfd.readouterr()
    assert command_line("fit", str(tiny_checkpoint), "--ctx", "512") in (0, 3)
    assert "nearest own session" in capfd.readouterr().out


def test_what_cannot_be_recorded_does_not_fail_the_session(
    tiny_checkpoint: Any, tiny_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    launched = _launched(tiny_session, tiny_checkpoint)
    launched = replace(launched, plan=launched.plan.model_copy(update={"expected_ram_mib": 1e300}))
    tiny_session.tally.answers = 1
    with keeping_session(launched, tiny_session, "chat"):
        pass
    shown = capsys.readouterr().err
    assert shown.count("warning:") == 1 and "this session is not kept" in shown and "ValidationError" in shown
    assert read_sessions() == ()
