"""Kernel timings kept for a machine: what comes back, what is replaced, and what counts for nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold.kernels.cpu import missing_reason
from twofold.profiles import kernel_store
from twofold.profiles.figures import measured, reasoned, reported, unknown
from twofold.profiles.hardware import KernelTiming
from twofold.profiles.kernel_store import kernels_dir, machine_key, own_timings, save_timings

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")


@pytest.fixture(autouse=True)
def _fresh_key() -> Iterator[None]:
    machine_key.cache_clear()
    yield
    machine_key.cache_clear()


def timing(rows: int = 1, us: float = 12.5, **changes: Any) -> KernelTiming:
    figure = measured(us, "us", "a sweep", n=7, spread=0.5)
    fields = {"op": "linear", "shape": "960x576", "bits": 6, "rows": rows, "isa": "avx2", "threads": 2}
    return KernelTiming(**(fields | {"latency_us": figure} | changes))


def _file() -> Path:
    (path,) = kernels_dir().glob("*.json")
    return path


def test_what_was_measured_comes_back_with_n_and_spread() -> None:
    assert own_timings() == ()
    rows = (timing(1), timing(5, 40.0), timing(1, isa="generic"), timing(1, threads=1), timing(1, bits=8))
    rows += (timing(1, activations="int8"),)
    assert save_timings(rows)
    assert own_timings() == rows
    assert (own_timings()[0].latency_us.n, own_timings()[0].latency_us.spread) == (7, 0.5)
    assert _file().stat().st_mode & 0o077 == 0


def test_a_time_without_activations_is_of_the_usual_ones() -> None:
    save_timings((timing(),))
    document = json.loads(_file().read_text())
    del document["kernels"][0]["activations"]
    _file().write_text(json.dumps(document))
    assert own_timings() == (timing(activations="int16"),)


def test_a_newer_time_of_the_same_kernel_takes_the_place_of_the_older() -> None:
    save_timings((timing(1), timing(5, 40.0)))
    save_timings((timing(1, 9.0), timing(1, 77.0, shape="64x64")))
    assert {(one.shape, one.rows): one.latency_us.number for one in own_timings()} == {
        ("960x576", 1): 9.0,
        ("960x576", 5): 40.0,
        ("64x64", 1): 77.0,
    }


def test_another_module_processor_or_set_of_instructions_reads_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    save_timings((timing(),))
    key = machine_key()
    for name in ("file_sha256", "_processor"):
        with monkeypatch.context() as patch:
            patch.setattr(kernel_store, name, lambda *_: "another")
            machine_key.cache_clear()
            assert machine_key() != key and own_timings() == ()
            assert save_timings((timing(us=1.0),)) and own_timings()[0].latency_us.number == 1.0
    machine_key.cache_clear()
    assert machine_key() == key and own_timings()[0].latency_us.number == 12.5


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema_version": 1}',
        '{"schema_version": 2, "kernels": []}',
        '{"schema_version": 1, "kernels": [{}]}',
        '{"schema_version": 1, "kernels": {"a": 1}}',
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_a_damaged_file_counts_for_nothing_and_is_replaced(damage: str) -> None:
    save_timings((timing(),))
    path = _file()
    path.write_text(damage, encoding="latin-1")
    assert own_timings() == ()
    assert save_timings((timing(3),)) and own_timings() == (timing(3),)


@pytest.mark.parametrize(
    "change",
    [
        {"value": 0},
        {"value": -1.0},
        {"value": "12"},
        {"value": None, "source": "unknown"},
        {"source": "reported"},
        {"unit": "s"},
        {"n": 0},
        {"spread": -1.0},
        {"extra": 1},
    ],
)
def test_one_figure_that_cannot_be_spoils_the_file(change: dict[str, Any]) -> None:
    save_timings((timing(), timing(2)))
    document = json.loads(_file().read_text())
    document["kernels"][1]["latency_us"] |= change
    _file().write_text(json.dumps(document))
    assert own_timings() == ()


def test_a_file_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    save_timings((timing(),))
    monkeypatch.setattr(kernel_store, "_MAX_BYTES", 10)
    assert own_timings() == ()


@pytest.mark.parametrize(
    "figure",
    [reported(1.0, "us", "a friend"), reasoned(1.0, "us", "a guess"), unknown("us", "lost"), measured(0.0, "us", "x")],
)
def test_only_what_was_measured_here_is_kept(figure: Any) -> None:
    with pytest.raises(ValueError, match="measured here" if figure.value != 0 else "a number from"):
        save_timings((timing(latency_us=figure),))
    assert own_timings() == ()


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_breaks() -> None:
    kernels_dir().parent.mkdir(parents=True, exist_ok=True)
    kernels_dir().write_text("a file in the folder's place")
    assert not save_timings((timing(),)) and own_timings() == ()


def test_the_newest_are_kept_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_store, "MAX_TIMINGS", 3)
    save_timings(timing(rows) for rows in (1, 2, 3))
    save_timings((timing(1, 1.0), timing(4)))
    assert [(one.rows, one.latency_us.number) for one in own_timings()] == [(3, 12.5), (1, 1.0), (4, 12.5)]
