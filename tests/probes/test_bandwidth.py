"""The stop rule, the size of the set, and the native meter itself."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest

import twofold.kernels.cpu as kernels_cpu
from twofold.kernels.cpu import missing_reason, native
from twofold.probes.bandwidth import CannotMeasure, measure_ram, read_bandwidth, set_bytes
from twofold.probes.cpu import read_cpu, usable_cpus
from twofold.probes.memory import read_memory
from twofold.probes.stopping import StopRule, collect
from twofold.profiles.series import iqr

MIB = 1 << 20
needs_native = pytest.mark.skipif(missing_reason() is not None, reason="no native module")


def ticking(step_s: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step_s


def run(values: list[float], rule: StopRule, step_s: float) -> tuple[int, str]:
    """(samples taken, what ended it) when every sample takes `step_s`."""
    clock, source = ticking(step_s), iter(values)
    series = collect(lambda: next(source), rule, lambda: next(clock))
    return len(series.samples), series.ended_by


def test_quiet_series_ends_at_the_minimum() -> None:
    assert run([10.0] * 50, StopRule(min_samples=5, min_seconds=0.0), 0.01) == (5, "noise small")


def test_quiet_series_still_takes_its_minimum_time() -> None:
    taken, ending = run([10.0] * 500, StopRule(min_samples=5, min_seconds=0.2), 0.01)
    assert ending == "noise small"
    assert taken == 20


def test_noise_that_stays_ends_as_stable() -> None:
    noisy = random.Random(1)
    values = [noisy.uniform(8.0, 12.0) for _ in range(500)]
    taken, ending = run(values, StopRule(min_samples=5, min_seconds=0.0, max_seconds=1e9), 0.01)
    assert ending == "noise stable"
    assert 13 <= taken < 200


def test_noise_that_grows_ends_by_the_clock() -> None:
    values = [2.0 ** (i / 2) for i in range(400)]
    taken, ending = run(values, StopRule(min_samples=5, min_seconds=0.0, max_seconds=0.5), 0.01)
    assert ending == "time limit"
    assert taken == 50


def test_one_slow_sample_is_a_result() -> None:
    assert run([3.0], StopRule(max_seconds=1.0), 5.0) == (1, "time limit")


def test_figure_tells_n_spread_and_ending() -> None:
    source = iter([10.0, 11.0, 12.0, 13.0, 14.0])
    clock = ticking(1.0)
    series = collect(lambda: next(source), StopRule(min_samples=9, max_seconds=5.0), lambda: next(clock))
    figure = series.figure("GB/s", "test")
    assert (figure.value, figure.n, figure.spread) == (12.0, 5, 2.0)
    assert figure.by == "test; median; ended by: time limit"


def test_iqr() -> None:
    assert iqr([5.0]) == 0.0
    assert iqr([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0


@pytest.mark.parametrize("wrong", [{"min_samples": 1}, {"window": 1}, {"max_seconds": 0.0}])
def test_senseless_rules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least two"):
        StopRule(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("last_level_mib", "available_mib", "set_mib"),
    [(8, 20000, 256), (64, 20000, 512), (32, 2600, 256), (30, 2410, 241), (0, 20000, 256), (0, 500, 50)],
)
def test_set_is_beyond_the_cache_and_within_a_tenth(last_level_mib: int, available_mib: int, set_mib: int) -> None:
    assert set_bytes(last_level_mib * MIB, available_mib * MIB) // MIB == set_mib


@pytest.mark.parametrize(("last_level_mib", "available_mib"), [(64, 5000), (768, 32000), (8, 0)])
def test_too_little_memory_for_an_honest_figure(last_level_mib: int, available_mib: int) -> None:
    with pytest.raises(CannotMeasure, match=r"needs a set of \d+ MiB .* a tenth of the available memory is \d+ MiB"):
        set_bytes(last_level_mib * MIB, available_mib * MIB)


@needs_native
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("total", [64 * 7, 4096 + 8, MIB + 12345])
def test_every_word_is_read(threads: int, total: int) -> None:
    meter = native().ReadMeter(total, [-1] * threads)
    assert 0 < meter.bytes <= total
    assert meter.bytes > total - 64 * threads
    for _ in range(3):
        assert meter.sample() >= 0
        assert meter.checksum == meter.expected_checksum
    words = meter.bytes // 8
    assert meter.expected_checksum == (words * (words - 1) // 2) % (1 << 64)


@needs_native
def test_pinning_is_reported() -> None:
    allowed = usable_cpus()
    if not allowed:
        pytest.skip("no affinity on this system")
    assert native().ReadMeter(MIB, [allowed[0]]).pinned
    assert not native().ReadMeter(MIB, [1023]).pinned
    assert not native().ReadMeter(MIB, [10**6]).pinned


@needs_native
def test_bad_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        native().ReadMeter(MIB, [])
    with pytest.raises(ValueError, match="cache line"):
        native().ReadMeter(63, [-1])
    with pytest.raises(MemoryError):
        native().ReadMeter(1 << 60, [-1])


@needs_native
def test_a_set_that_cannot_be_had_is_unknown() -> None:
    figure = read_bandwidth(1 << 60, [-1], StopRule())
    assert figure.value is None
    assert "could not get" in figure.by


@needs_native
def test_this_machines_memory() -> None:
    rule = StopRule(min_samples=3, min_seconds=0.02, max_seconds=0.3)
    told: list[str] = []
    ram = measure_ram(read_memory(), read_cpu(), told.append, rule)
    for figure in (ram.read_gb_s_one_thread, ram.read_gb_s_all_cores):
        if not figure.is_known:
            assert "a tenth of the available memory" in figure.by
            continue
        assert figure.source == "measured"
        assert figure.unit == "GB/s"
        assert figure.n is not None and figure.n >= 1
        assert figure.spread is not None
        assert 0.1 < figure.number < 5000
        assert "ended by" in figure.by
        assert told


@needs_native
def test_an_interrupt_is_heard_between_samples() -> None:
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    rule = StopRule(min_samples=10**9, min_seconds=30, max_seconds=30)
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        read_bandwidth(16 * MIB, [-1], rule)
    assert time.monotonic() - began < 10


def test_without_the_native_module_bandwidth_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_cpu, "_module", None)
    ram = measure_ram(read_memory(), read_cpu())
    assert ram.read_gb_s_one_thread.value is None
    assert "native module is missing" in ram.read_gb_s_all_cores.by
    assert ram.total_mib.is_known
