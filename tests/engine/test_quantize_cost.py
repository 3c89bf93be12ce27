"""The cost sheet: bytes equal to what is written, memory stated in advance and kept, refusals."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.checkpoint.layout import expected_tensors
from twofold.engine.quantize.cost import (
    Rates,
    check,
    cost_sheet,
    flops,
    head_peak_bytes,
    measure_rates,
    peak_bytes,
    result_bytes,
)
from twofold.engine.quantize.options import QuantizeOptions
from twofold.engine.quantize.workspace import Done, left_by
from twofold.profiles.errors import NotEnoughSpace
from twofold.profiles.figures import measured, reasoned, unknown
from twofold.profiles.model_spec import LinearGroup, ModelSpec
from twofold.profiles.readers.local import read_folder_spec
from twofold.profiles.readers.shipped import shipped_spec

ROOT = Path(__file__).parents[2]
SIZES = {"F16": 2, "F32": 4, "I8": 1, "U8": 1}


@pytest.fixture
def spec(quantizable_folder: Path) -> ModelSpec:
    return read_folder_spec(quantizable_folder, name="tiny")


def _smollm2() -> ModelSpec:
    found = shipped_spec("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert found is not None
    return found


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_result_bytes_are_those_of_the_format(bits: int) -> None:
    spec, options = _smollm2(), QuantizeOptions(residual_bits=bits)
    config = CheckpointConfig(residual_bits=bits, overrides=options.overrides)
    exact = 0
    for layout in expected_tensors(spec, config).values():
        size = SIZES[layout.dtype]
        for extent in layout.shape:
            size *= extent
        exact += size
    assert result_bytes(spec, options) == pytest.approx(exact, rel=0.005)


def test_rates_are_measured_and_give_a_time(spec: ModelSpec) -> None:
    rates = measure_rates()
    assert rates.gemm_gflops.source == "measured"
    assert rates.gemm_gflops.n is not None
    assert rates.gemm_gflops.number > 0.1
    assert rates.step_s > 0
    sheet = cost_sheet(_smollm2(), reasoned(0, "B", "here"), QuantizeOptions(), 8192, rates)
    assert sheet.time.source == "reasoned"
    assert sheet.time.low < sheet.time.number < sheet.time.high
    assert "in this moment" in sheet.time.by and sheet.time.high >= 6 * sheet.time.low * 0.99
    assert sheet.peak_ram.number < 0.8e9 < sheet.peak_ram.high  # seen with this model
    tiny = cost_sheet(spec, reasoned(0, "B", "here"), QuantizeOptions(), 8192, rates)
    assert tiny.time.number < sheet.time.number
    assert flops(_smollm2(), 16384) > 1.5 * flops(_smollm2(), 8192)


def test_what_an_interrupted_run_has_done_is_not_counted_again(spec: ModelSpec, tmp_path: Path) -> None:
    options, rates = QuantizeOptions(), Rates(measured(0.05, "GFLOP/s", "here"), 1e-4, 1e-8)
    here = reasoned(0, "B", "here")
    whole = cost_sheet(spec, here, options, 8192, rates)
    assert "goes on" not in whole.time.by and "less what is there" not in whole.disk_needed.by
    sheets = [cost_sheet(spec, here, options, 8192, rates, Done(n, 1000 * n)) for n in range(1, spec.n_layers + 2)]
    times = [whole.time.number, *(sheet.time.number for sheet in sheets)]
    assert times == sorted(times, reverse=True) and times[-1] == 0 < times[-2] < times[0]
    share = [sum(m.n_weights for group in layer.groups for m in group.members) for layer in spec.layers]
    assert share[0] == share[1] and times[0] - times[1] == pytest.approx(times[1] - times[2], abs=0.11)
    assert "2 of 4 layers" in sheets[1].time.by
    assert sheets[1].disk_needed.number == whole.disk_needed.number - 2000
    assert sheets[1].result.number == whole.result.number
    huge = cost_sheet(spec, reasoned(700, "B", "there"), options, 8192, rates, Done(1, 1 << 50))
    assert huge.disk_needed.number == 700
    assert left_by(tmp_path / "nothing", options) == Done()
    partial = tmp_path / "bad.partial"
    partial.mkdir()
    for text in ("", "[]", '{"identity": {}, "layers_done": 2}', '{"identity": 3, "layers_done": "x"}'):
        (partial / "state.json").write_text(text)
        assert left_by(tmp_path / "bad", options) == Done()


def test_refining_is_in_the_costs() -> None:
    """Time by passes, disk for bases and K and V, memory for the head and a layer with its gradient."""
    spec, rates = _smollm2(), Rates(measured(40.0, "GFLOP/s", "here"), 1e-4, 1e-8)
    here = reasoned(0, "B", "here")
    plain, two, four = (cost_sheet(spec, here, QuantizeOptions(refine_passes=n), 11264, rates) for n in (0, 2, 4))
    assert plain.time.number < two.time.number < four.time.number
    a_pass = 11264 * (8 * spec.n_decoder_weights + 6 * spec.vocab_size * spec.hidden_size) / 40e9
    assert (four.time.number - two.time.number) / 2 == pytest.approx(1.17 * a_pass, rel=0.06)
    assert "4 passes of training over 11264 tokens" in four.time.by and "passes" not in plain.time.by
    assert four.work_files.number - plain.work_files.number >= spec.n_decoder_weights
    assert four.result.number == plain.result.number
    assert plain.peak_ram.number < four.peak_ram.number == two.peak_ram.number < 1.6e9


def test_what_an_interrupted_refining_has_done_is_not_counted_again(spec: ModelSpec) -> None:
    options, rates = QuantizeOptions(refine_passes=4), Rates(measured(0.05, "GFLOP/s", "here"), 1e-4, 1e-8)
    n_steps = 2 * spec.n_layers + 2
    sheets = [
        cost_sheet(spec, reasoned(0, "B", "here"), options, 8192, rates, Done(n, 1000)) for n in range(n_steps + 1)
    ]
    times = [sheet.time.number for sheet in sheets]
    assert times == sorted(times, reverse=True) and len(set(times)) == n_steps + 1 and times[-1] == 0
    falls = [a - b for a, b in itertools.pairwise(times)]
    assert falls.index(max(falls)) == spec.n_layers, "training takes longest"
    assert f"3 of {n_steps} steps" in sheets[3].time.by


def test_unknown_stays_unknown(spec: ModelSpec) -> None:
    sheet = cost_sheet(spec, unknown("B", "offline"), QuantizeOptions(), 1000)
    assert not sheet.time.is_known
    assert not sheet.download.is_known
    assert "unknown size" in sheet.disk_needed.by


def test_short_memory_and_disk_are_refused(tmp_path: Path, spec: ModelSpec) -> None:
    options = QuantizeOptions()
    sheet = cost_sheet(spec, reasoned(0, "B", "here"), options, 1000)
    check(sheet, tmp_path / "a" / "b", 1 << 40)
    check(sheet, tmp_path, None)
    with pytest.raises(NotEnoughSpace, match="memory") as caught:
        check(sheet, tmp_path, 1 << 20)
    assert caught.value.needed is not None
    huge = cost_sheet(spec, reasoned(1 << 60, "B", "here"), options, 1000)
    with pytest.raises(NotEnoughSpace, match="disk") as caught:
        check(huge, tmp_path, None)
    assert caught.value.found is not None


def test_peak_grows_with_tokens_up_to_the_share_of_ram() -> None:
    spec, options = _smollm2(), QuantizeOptions()
    assert peak_bytes(spec, options, 4096) < peak_bytes(spec, options, 16384)
    assert peak_bytes(spec, options, 1 << 17) == peak_bytes(spec, options, 1 << 18)
    assert peak_bytes(spec, options, 8192) < 2.5e9


def test_the_head_of_a_large_vocabulary_costs_a_slice() -> None:
    """What was stated when the head was quantised whole: 20 GB for Qwen3 8B, whose layers need a quarter of that."""
    spec, options = shipped_spec("Qwen/Qwen3-8B"), QuantizeOptions()
    assert spec is not None
    assert peak_bytes(spec, options, 8192) < 5.5e9
    head, rows = head_peak_bytes(spec.head, 8, 8192), spec.vocab_size
    assert head < peak_bytes(spec, options, 8192)
    (member,) = spec.head.members
    twice = LinearGroup("lm_head", (dataclasses.replace(member, out_features=2 * rows),))
    assert head_peak_bytes(twice, 8, 8192) == head


@pytest.mark.slow
def test_a_synthetic_head_of_gemma_4_keeps_the_stated_peak() -> None:
    """A sixteenth of both dimensions are two slices: what is stated for one must hold."""
    script = str(ROOT / "benchmarks" / "gemma4_layer.py")
    command = [sys.executable, script, "--scale", "16", "--tokens", "128", "--groups", "head"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["measured_peak"]["value"] <= document["stated_peak"]["value"]
    assert [row["group"] for row in document["groups"]] == ["head"]


@pytest.mark.slow
def test_a_synthetic_layer_of_gemma_4_keeps_the_stated_peak() -> None:
    """The benchmark at an eighth of the dimensions: it fails by itself when the peak exceeds what it stated."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gemma4_layer.py"), "--scale", "8", "--tokens", "128"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["kept"] is True
    assert document["measured_peak"]["value"] <= document["stated_peak"]["value"]
    assert [row["group"] for row in document["groups"]] == ["qkv", "o", "gate_up", "down"]
