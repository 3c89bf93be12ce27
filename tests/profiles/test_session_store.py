"""What sessions observed: kept in order and bounded, private, and worth nothing where damaged."""

from __future__ import annotations

import json
import multiprocessing
import stat
from typing import Any

import pytest

from twofold.profiles import session_store
from twofold.profiles.figures import reported, unknown
from twofold.profiles.session_store import (
    MAX_BYTES,
    MAX_LINE,
    MAX_SESSIONS,
    SessionRecord,
    Speed,
    add_session,
    machine_key,
    model_name,
    read_sessions,
    sessions_path,
)


def record(**changes: Any) -> SessionRecord:
    fields: dict[str, Any] = {
        "command": "chat", "ending": "end", "day": "2026-11-30", "machine": "a" * 32, "cpu": "AMD EPYC", "cores": 2,
        "checkpoint": "b" * 32, "model": "smollm2", "vocab_size": 49152, "n_parameters": 134515008,
        "weights_bytes": 203240180, "residual_bits": 6, "context_tokens": 8192, "k_type": "f16", "v_type": "f16",
        "draft_nodes": 0, "draft_depth": 0, "prefill_chunk": 64, "threads": 2, "isa": "avx2", "build": "fe36e40",
        "version": "0.1.0", "planned_mib": 508.7, "planned": {"base": 28339200}, "allocated": {"base": 28339200},
        "peak_mib": 264.1, "process_mib": 91.7, "filled_tokens": 82, "answers": 1, "checks": 40,
        "decode": {"tok_s": 38.2, "n": 3, "spread": 0.4, "tokens": 120}, "tokens_per_check": 1.0, "first_token_s": 0.4,
    }  # fmt: skip
    return SessionRecord.model_validate_json(json.dumps(fields | changes))


def test_a_session_comes_back_as_it_was() -> None:
    assert read_sessions() == ()
    first, second = record(), record(model="org/other", decode=None, peak_mib=None, ending="interrupted")
    assert add_session(first) and add_session(second)
    assert read_sessions() == (first, second)
    assert stat.S_IMODE(sessions_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(sessions_path().with_suffix(".lock").stat().st_mode) == 0o600
    assert first.decode == Speed(tok_s=38.2, n=3, spread=0.4, tokens=120)


def test_only_the_newest_are_kept() -> None:
    sessions_path().parent.mkdir(parents=True)
    old = "".join(record(filled_tokens=i).model_dump_json(exclude_none=True) + "\n" for i in range(MAX_SESSIONS))
    sessions_path().write_text(old)
    add_session(record(filled_tokens=MAX_SESSIONS))
    kept = [one.filled_tokens for one in read_sessions()]
    assert kept == list(range(1, MAX_SESSIONS + 1))
    assert sessions_path().stat().st_size < MAX_BYTES / 2


@pytest.mark.parametrize(
    "line",
    [
        "", "{", "[]", "null", "\x00\xff", "[" * 100_000, '{"schema_version": 2}', "x" * (MAX_LINE + 1),
        json.dumps({"schema_version": 1, "model": "smollm2"}),
    ],
)  # fmt: skip
def test_a_damaged_line_counts_for_nothing(line: str) -> None:
    good = record()
    add_session(good)
    with sessions_path().open("a", encoding="latin-1") as file:
        file.write(line + "\n")
    assert read_sessions() == (good,)
    assert add_session(good) and read_sessions() == (good, good)


@pytest.mark.parametrize(
    "changes",
    [
        {"peak_mib": -1.0}, {"peak_mib": 1e12}, {"residual_bits": 9}, {"residual_bits": "6"}, {"k_type": "f32"},
        {"machine": "../../etc"}, {"model": "a\x1b[2J"}, {"day": "yesterday"}, {"decode": {"tok_s": 0}},
        {"decode": {"tok_s": 1e99}}, {"surplus": 1}, {"schema_version": 2}, {"threads": True}, {"model": "x" * 300},
    ],
)  # fmt: skip
def test_a_line_out_of_bounds_counts_for_nothing(changes: dict[str, Any]) -> None:
    sessions_path().parent.mkdir(parents=True)
    document = json.loads(record().model_dump_json(exclude_none=True)) | changes
    sessions_path().write_text(json.dumps(document) + "\n" + record().model_dump_json(exclude_none=True) + "\n")
    assert read_sessions() == (record(),)


def test_nan_counts_for_nothing() -> None:
    sessions_path().parent.mkdir(parents=True)
    sessions_path().write_text(record().model_dump_json(exclude_none=True).replace("264.1", "NaN") + "\n")
    assert read_sessions() == ()


def test_a_huge_file_is_not_read() -> None:
    sessions_path().parent.mkdir(parents=True)
    with sessions_path().open("wb") as file:
        file.truncate(200_000_000)
    assert read_sessions() == ()
    assert add_session(record()) and len(read_sessions()) == 1


def test_a_folder_that_cannot_be_written_loses_only_the_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_HOME", "/dev/null/nowhere")
    assert add_session(record()) is False
    assert read_sessions() == ()


def test_a_busy_lock_loses_only_the_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.profiles.locks import exclusive

    monkeypatch.setattr(session_store, "_LOCK_SECONDS", 0.0)
    with exclusive(sessions_path().with_suffix(".lock"), "holding it"):
        assert add_session(record()) is False
    assert add_session(record()) is True


def _add_many(first: int) -> None:
    for i in range(10):
        assert add_session(record(filled_tokens=first + i))


def test_two_processes_at_once_lose_nothing() -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_add_many, args=(first,)) for first in (0, 100)]
    for one in both:
        one.start()
    for one in both:
        one.join()
        assert one.exitcode == 0
    assert sorted(one.filled_tokens for one in read_sessions()) == [*range(10), *range(100, 110)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("smollm2", "smollm2"), ("org/Model-7B", "org/Model-7B"), ("org/Model@main", "org/Model@main"),
        ("/home/jane/models/a.gguf", "a.gguf"), ("~/models/a.gguf", "a.gguf"), ("../a.gguf", "a.gguf"),
        ("models/jane/a.gguf", "a.gguf"), (r"C:\Users\jane\a.gguf", "a.gguf"), ("./x/", "x"), ("~jane", "unnamed"),
        ("/", "unnamed"), ("", "unnamed"), ("C:\\", "unnamed"), ("a\nb/c d", "c d"), ("..", "unnamed"),
    ],
)  # fmt: skip
def test_a_name_is_never_a_path(text: str, name: str) -> None:
    assert model_name(text) == name


def test_equal_hardware_has_one_key() -> None:
    cpu, cores, ram = (
        reported("EPYC", "", "cpuinfo"),
        reported(2, "cores", "sysfs"),
        reported(24010.0, "MiB", "meminfo"),
    )
    key = machine_key(cpu, cores, ram)
    assert key == machine_key(cpu, cores, reported(24015.5, "MiB", "meminfo"))
    assert key != machine_key(cpu, reported(4, "cores", "sysfs"), ram) != machine_key(cpu, cores, unknown("MiB", "?"))
    assert "epyc" not in key.lower()


@pytest.mark.parametrize(
    ("changes", "possible"),
    [
        ({}, True),
        ({"process_mib": None, "peak_mib": None}, True),
        ({"process_mib": 8000.0, "peak_mib": 8000.0}, True),
        ({"process_mib": 8001.0, "peak_mib": 8001.0}, False),
        ({"process_mib": 92.0, "peak_mib": 60000.0}, False),
        ({"process_mib": 0.0, "peak_mib": 264.0}, False),
        ({"process_mib": 0.0, "peak_mib": 0.0}, False),
        ({"process_mib": 300.0, "peak_mib": 264.0}, False),
    ],
)
def test_peaks_that_no_such_machine_can_have_seen(changes: dict[str, Any], possible: bool) -> None:
    from twofold.profiles.session_store import is_possible

    assert is_possible(record(**changes), reported(8000, "MiB", "test")) is possible
