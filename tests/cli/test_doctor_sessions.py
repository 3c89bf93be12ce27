"""What doctor says of own sessions, on records of real sessions of a small model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from twofold.cli.doctor_sessions import check_rereads, check_sessions, check_timings, last_allocations, last_document
from twofold.profiles.session_store import add_session, read_sessions

CommandLine = Callable[..., int]


def test_without_sessions_nothing_is_wrong() -> None:
    for check in (check_sessions(), check_rereads(), check_timings()):
        assert check.status == "ok" and check.remedy is None
    assert last_allocations() == [] and last_document() is None


def test_the_last_session_is_shown(
    start_command: Callable[..., Any], command_line: CommandLine, capfd: pytest.CaptureFixture[str]
) -> None:
    # in a process of its own, whose peak is not that of the tests before
    process = start_command("run", "tiny", "hello", "--temp", "0", "--max-tokens", "20")
    process.communicate()
    assert process.returncode == 0
    check = check_sessions()
    assert check.status == "ok" and "1 observed, 1 by this build" in check.found and "run of tiny" in check.found
    rows = {row[0]: row[1:] for row in last_allocations()}
    assert rows["kv_cache"][2] == "exact" and rows["kv_cache"][0] == rows["kv_cache"][1] != "-"
    assert rows["base"][2] == "exact" and rows["all reserved"][0] != "-"
    capfd.readouterr()
    command_line("doctor", "--format", "json")
    document = json.loads(capfd.readouterr().out)
    last = document["last_session"]
    assert last["planned_bytes"]["kv_cache"] == last["reserved_bytes"]["kv_cache"] > 0
    assert {"sessions", "weights reread", "kernel timings", "threads"} <= {one["name"] for one in document["checks"]}
    command_line("doctor")
    assert "Memory of the last session: tiny" in capfd.readouterr().out


def test_short_memory_is_a_finding(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("run", "tiny", "hello", "--temp", "0", "--max-tokens", "20") == 0
    (one,) = read_sessions()
    add_session(one.model_copy(update={"major_faults": 5000, "reread_steps": 7}))
    check = check_rereads()
    assert check.status == "warn" and "5000 pages" in check.found and "7 of 20 checks" in check.found and check.remedy
    add_session(one.model_copy(update={"peak_mib": 10_000.0}))
    check = check_sessions()
    assert check.status == "warn" and "peak 10,000 of 100 MiB planned" in check.found
