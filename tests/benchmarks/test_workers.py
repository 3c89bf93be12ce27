"""Processes that hold an engine: answers, errors, deaths, and what they use while parked.

What they serve here are standard modules: real objects in real processes.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path

import pytest
from versus.twofold_side import TwofoldSide
from versus.workers import Worker

from twofold.profiles.errors import EngineFailed, InvalidProfile, ModelNotFound


def _module(name: str) -> Worker:
    return Worker(f"the module {name}", importlib.import_module, name=name)


def test_it_answers_from_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TWOFOLD_CPU_ISA", "generic")
    worker = _module("os")
    try:
        assert worker.ask("getpid") != os.getpid()
        assert worker.ask("getenv", "OMP_NUM_THREADS") is None  # would hold one engine back and not the other
        assert worker.ask("getenv", "TWOFOLD_CPU_ISA") == "generic"
        assert os.environ["OMP_NUM_THREADS"] == "1"
    finally:
        worker.close()


def test_an_error_comes_back_and_the_process_stays() -> None:
    worker = _module("os")
    try:
        with pytest.raises(EngineFailed, match="the module os failed: FileNotFoundError"):
            worker.ask("stat", "/nowhere/at/all")
        assert worker.ask("getpid") > 0
    finally:
        worker.close()


def test_a_persons_error_keeps_its_hint() -> None:
    with pytest.raises(InvalidProfile, match="the plan is not valid") as caught:
        Worker("twofold", TwofoldSide, checkpoint=Path("/nowhere/at/all"), plans={"plain": "{}"})
    assert caught.value.hint


def test_a_process_that_dies_is_an_error_not_a_hang() -> None:
    worker = _module("os")
    try:
        with pytest.raises(EngineFailed) as caught:
            worker.ask("_exit", 3)
        assert caught.value.found == "exit code 3"
        with pytest.raises(EngineFailed):
            worker.ask("getpid")
    finally:
        worker.close()
    worker.close()


def test_what_is_parked_uses_next_to_nothing() -> None:
    worker = _module("os")
    try:
        worker.ask("getpid")
        time.sleep(0.5)
        parked = worker.parked()
        assert parked.wall_seconds >= 0.4  # the worker begins to count a moment after it was asked
        assert parked.share < 0.1
    finally:
        worker.close()


def test_a_thread_that_goes_on_spinning_is_seen() -> None:
    worker = _module("_thread")
    try:
        worker.ask("start_new_thread", eval, ("any(x for x in iter(int, 1))", {}))  # zeros for ever
        time.sleep(0.5)
        parked = worker.parked()
        assert parked.cpu_seconds > 0.02  # whatever share of a core a busy machine gives
    finally:
        worker.close()


def test_closing_ends_a_process_that_is_busy() -> None:
    worker = _module("time")
    worker._connection.send(("sleep", (600,)))
    start = time.perf_counter()
    worker.close()
    assert time.perf_counter() - start < 30
    assert not worker._process.is_alive()


def test_a_missing_model_is_named() -> None:
    from versus.model import open_model

    with pytest.raises(ModelNotFound):
        open_model("/nowhere/at/all.gguf", None, assume_yes=True)
