"""What quantising costs before it starts: disk, memory and time, each figure with its provenance."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from twofold.engine.quantize.options import SLICE_ROWS, QuantizeOptions
from twofold.engine.quantize.refine_cost import (
    DECODER_FLOPS,
    HEAD_FLOPS,
    bases_bytes,
    refine_flops,
    refine_peak_bytes,
    refine_store_bytes,
)
from twofold.engine.quantize.schedule import Schedule
from twofold.engine.quantize.workspace import Done
from twofold.planner.codecs import base_bytes, coded_bytes
from twofold.profiles.errors import NotEnoughSpace
from twofold.profiles.figures import Figure, measured, reasoned, unknown
from twofold.profiles.model_spec import LinearGroup, ModelSpec

TIME_RANGE = (0.5, 3.0)
"""Of the likely time: the rates are those of one second, and other programs' load comes and goes."""

PEAK_SLACK = 1.3
"""What an allocator holds beyond what is in use, of the counted peak: 0.8 GB were seen where 0.63 had been counted."""

_GROUP = 128
_CHUNK_ROWS = 2048
_STORE_RAM_BYTES = 512 << 20
_RUNTIME_BYTES = 330 << 20
"""Python with torch, numpy and the tokenizer loaded."""

_VOCABULARY_BYTES = 1600
"""Building a tokenizer out of a GGUF file, per token: Gemma's 262,144 tokens and 514,847 merges took 418 MB."""


def group_bytes(group: LinearGroup, bits: int) -> int:
    """Base and residual of a group in a checkpoint: codes and fp16 scales, padding included."""
    return base_bytes(group) + coded_bytes(group, bits)


def result_bytes(spec: ModelSpec, options: QuantizeOptions) -> int:
    """The checkpoint: all groups, the embedding in 16 bits, and norms."""
    split = sum(group_bytes(group, options.bits_of(group.name)) for group in spec.groups)
    return split + 2 * spec.n_embedding_weights + 8 * spec.hidden_size * (spec.n_layers + 1)


def _widest(spec: ModelSpec) -> int:
    return max((group.in_features for group in spec.groups), default=spec.hidden_size)


def _store_bytes(spec: ModelSpec, tokens: int) -> int:
    """What two streams keep between the stages of a layer: the residual stream and two generations of inputs."""
    return tokens * 4 * (2 * spec.hidden_size + _widest(spec))


def work_bytes(spec: ModelSpec, tokens: int, refine_passes: int = 0) -> int:
    """Work files besides the result: both streams before and behind a layer, and what exceeds the share of RAM; with
    refining the bases too.
    """
    streams, stored = 2 * tokens * spec.hidden_size * 4, _store_bytes(spec, tokens)
    if refine_passes:
        stored = max(stored, refine_store_bytes(spec, tokens))
        streams += bases_bytes(spec)
    return streams + max(0, stored - _STORE_RAM_BYTES)


def _group_peak_bytes(group: LinearGroup) -> int:
    """One group at its worst: weights, the rotated copy, the base's weights, one temporary of each kind, codes, a
    Hessian.

    Six fp32 matrices of the group's size were counted at the peak, plus codes of base and residual before and after
    packing.
    """
    weights = sum(member.n_weights for member in group.members)
    return 6 * 4 * weights + 4 * weights + 3 * 4 * group.in_features**2


def layer_peak_bytes(groups: tuple[LinearGroup, ...], bits: int, tokens: int) -> int:
    """Quantising one layer, group after group, the process itself included."""
    widest = max(sum(m.out_features for m in group.members) + group.in_features for group in groups)
    chunk = 3 * 4 * min(_CHUNK_ROWS, tokens) * widest
    packed = sum(group_bytes(group, bits) for group in groups)
    return _RUNTIME_BYTES + max(_group_peak_bytes(group) for group in groups) + 2 * packed + chunk


def head_peak_bytes(head: LinearGroup, bits: int, tokens: int) -> int:
    """Quantising the head, the process itself included: a slice of its rows and two Hessians; it has no product to
    compute. (The embedding goes to disk in slices that need less.)
    """
    (member,) = head.members
    rows = LinearGroup(head.name, (replace(member, out_features=min(SLICE_ROWS, member.out_features)),))
    chunk = 3 * 4 * min(_CHUNK_ROWS, tokens) * head.in_features
    return _RUNTIME_BYTES + _group_peak_bytes(rows) + 2 * group_bytes(rows, bits) + chunk


def peak_bytes(spec: ModelSpec, options: QuantizeOptions, tokens: int) -> int:
    """The process's peak memory: the worst layer, a slice of the head, a step of refining, or the tokenizer of a large
    vocabulary.
    """
    worst = head_peak_bytes(spec.head, options.bits_of(spec.head.name), tokens)
    for layer in spec.layers:
        worst = max(worst, layer_peak_bytes(layer.groups, options.residual_bits, tokens))
    worst += min(_STORE_RAM_BYTES, _store_bytes(spec, tokens))
    if options.refine_passes:
        stored = min(_STORE_RAM_BYTES, refine_store_bytes(spec, tokens))
        worst = max(worst, _RUNTIME_BYTES + refine_peak_bytes(spec, tokens) + stored)
    return max(worst, _RUNTIME_BYTES + _VOCABULARY_BYTES * spec.vocab_size)


def most_peak_bytes(spec: ModelSpec, peak: int) -> int:
    """What the process may take at most, where `peak` bytes were counted: with a tokenizer, which may be there still,
    and the allocator's slack.
    """
    return int(PEAK_SLACK * peak) + _VOCABULARY_BYTES * spec.vocab_size


@dataclass(frozen=True, slots=True)
class Rates:
    """This machine's rates: GFLOP/s of matrix products, seconds per rounding step, and per rounded weight."""

    gemm_gflops: Figure
    step_s: float
    weight_s: float


def measure_rates() -> Rates:
    """About a second of products and of error feedback, in the shapes that quantising uses."""
    import torch

    from twofold.engine.quantize.gptq import round_base, round_residual
    from twofold.engine.quantize.hessian import Hessian
    from twofold.engine.quantize.lloyd_max import GAUSSIAN

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1024, 1024, generator=generator)
    torch.mm(x, x)
    rates: list[float] = []
    deadline = time.perf_counter() + 0.4
    while time.perf_counter() < deadline or len(rates) < 3:
        begin = time.perf_counter()
        torch.mm(x, x)
        rates.append(2 * 1024**3 / (time.perf_counter() - begin) / 1e9)
    rates.sort()
    hessian = Hessian(256)
    hessian.add(torch.randn(512, 256, generator=generator))
    feedback = hessian.factor()

    def seconds(rows: int) -> float:
        weights = torch.randn(256, rows, generator=generator)
        begin = time.perf_counter()
        base = round_base(weights, feedback, GAUSSIAN, _GROUP)
        round_residual(base.error, feedback, 6, _GROUP)
        return time.perf_counter() - begin

    seconds(64)
    small, large = min(seconds(64) for _ in range(2)), seconds(4096)
    gemm = measured(
        round(rates[len(rates) // 2], 1),
        "GFLOP/s",
        "1024³ fp32 matrix products",
        n=len(rates),
        spread=round(rates[3 * len(rates) // 4] - rates[len(rates) // 4], 1),
    )
    return Rates(gemm, small / 256, max(large - small, 0.0) / (256 * 4096))


def _roundings(spec: ModelSpec, refine_passes: int, steps_done: int) -> Iterator[tuple[LinearGroup, float]]:
    """The groups of the steps that are left, each with the part of its two roundings that is done in the step."""
    layers = [*(layer.groups for layer in spec.layers), (spec.head,)]
    for task, layer in Schedule(spec.n_layers, refine_passes).from_step(steps_done):
        if task != "refine":
            yield from ((group, 1.0 if task == "both" else 0.5) for group in layers[layer])


def flops(spec: ModelSpec, tokens: int, steps_done: int = 0, refine_passes: int = 0) -> float:
    """Two forward streams, two Hessians a group (upper halves), their factors, and the feedback's products; what
    refining adds says `refine_flops`.
    """
    total = 0.0
    for group, share in _roundings(spec, refine_passes, steps_done):
        weights, k = sum(member.n_weights for member in group.members), group.in_features
        is_head = group.name == spec.head.name
        total += 0.0 if is_head else 2.0 * weights * tokens
        total += 1.2 * tokens * k * k + share * (2 * k**3 / 3 + 2.0 * weights * k)
    if refine_passes and steps_done <= spec.n_layers:
        total += refine_flops(spec, tokens, refine_passes)
    return total


def seconds(spec: ModelSpec, tokens: int, rates: Rates, steps_done: int = 0, refine_passes: int = 0) -> Figure:
    """Estimated time of quantising what is not done yet, from measured rates."""
    steps = weights = 0.0
    for group, share in _roundings(spec, refine_passes, steps_done):
        steps += share * group.in_features * -(-sum(m.out_features for m in group.members) // 8192)
        weights += share * sum(member.n_weights for member in group.members)
    value = (
        flops(spec, tokens, steps_done, refine_passes) / (rates.gemm_gflops.number * 1e9)
        + steps * rates.step_s
        + weights * rates.weight_s
    )
    # Rotations, packing, reading and writing were about a sixth on top.
    value *= 1.17
    by = f"operations counted, at {rates.gemm_gflops.value} GFLOP/s measured in this moment, under its load"
    if refine_passes:
        by += f"; two walks and {refine_passes} passes of training over {tokens} tokens"
        by += f" ({DECODER_FLOPS} operations a decoder weight, {HEAD_FLOPS} a head's)"
    if steps_done:
        done = f"{steps_done} of {Schedule(spec.n_layers, refine_passes).n_steps}"
        kind = "steps (a layer of a walk, or refining)" if refine_passes else "layers (head included)"
        by += f"; goes on where it stopped, {done} {kind} are done"
    low, high = TIME_RANGE
    return reasoned(round(value, 1), "s", by, low=round(low * value, 1), high=round(high * value, 1))


@dataclass(frozen=True, slots=True)
class CostSheet:
    """What getting and quantising a model takes. `disk_needed` is what must be free now: result, work files,
    download."""

    model: str
    download: Figure
    result: Figure
    work_files: Figure
    disk_needed: Figure
    peak_ram: Figure
    time: Figure

    def rows(self) -> list[tuple[str, Figure]]:
        """Labels and figures in the order to show them."""
        return [
            ("download", self.download),
            ("checkpoint on disk", self.result),
            ("work files on disk", self.work_files),
            ("disk needed now", self.disk_needed),
            ("peak memory", self.peak_ram),
            ("time to quantise", self.time),
        ]


def cost_sheet(
    spec: ModelSpec,
    download: Figure,
    options: QuantizeOptions,
    tokens: int,
    rates: Rates | None = None,
    done: Done | None = None,
) -> CostSheet:
    """The costs of quantising `spec`, less what an interrupted run has done; without `rates` the time is unknown."""
    done = done or Done()
    passes = options.refine_passes
    result, peak = result_bytes(spec, options), peak_bytes(spec, options, tokens)
    work = work_bytes(spec, tokens, passes)
    kept = "hidden states of both streams" + (", the bases, K and V of the calibration text" if passes else "")
    to_fetch = int(download.number) if download.is_known else 0
    by = "result + work files" + ("" if download.is_known else " + a download of unknown size")
    by = by if not to_fetch else f"download + {by}"
    by = by if not done.disk_bytes else f"{by}, less what is there already"
    return CostSheet(
        model=spec.name,
        download=download,
        result=reasoned(result, "B", "codes, scales and embedding counted"),
        work_files=reasoned(work, "B", kept),
        disk_needed=reasoned(max(0, result + work - done.disk_bytes) + to_fetch, "B", by),
        peak_ram=reasoned(
            peak,
            "B",
            "largest group, Hessian, codes and hidden states counted; at most with tokenizer and allocator's slack",
            low=int(0.6 * peak),
            high=most_peak_bytes(spec, peak),
        ),
        time=(
            seconds(spec, tokens, rates, done.layers, passes)
            if rates is not None
            else unknown("s", "no rate was measured")
        ),
    )


def check(sheet: CostSheet, out_dir: Path, available_ram_bytes: int | None) -> None:
    """Refuse what cannot end well.

    Raises:
        NotEnoughSpace: too little free disk where the checkpoint goes, or too little memory.
    """
    place = out_dir
    while not place.exists():
        place = place.parent
    free, needed = shutil.disk_usage(place).free, int(sheet.disk_needed.number)
    if free < needed:
        raise NotEnoughSpace(
            f"too little free disk to quantise {sheet.model}",
            found=f"{free / 1e9:.2f} GB free at {place}",
            needed=f"{needed / 1e9:.2f} GB",
            hint="free some space, or choose another disk with -o or TWOFOLD_HOME",
        )
    peak = int(sheet.peak_ram.number)
    if available_ram_bytes is not None and available_ram_bytes < peak:
        raise NotEnoughSpace(
            f"too little memory to quantise {sheet.model}",
            found=f"{available_ram_bytes / 1e9:.2f} GB available",
            needed=f"{peak / 1e9:.2f} GB",
            hint="close other programs, or quantise on a machine with more memory and copy the folder",
        )
