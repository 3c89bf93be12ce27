"""One synthetic layer of Gemma 4 31B's shapes, or its head, through the real quantising step: peak memory stated in
advance, and kept.

A sliding layer: hidden 5376, 32 query heads of 256, 16 KV heads of 256, MLP 21504; the head has 262144 rows. Weights
and inputs are random, the calibration rows few: memory does not depend on what the numbers are. Prints JSON; exits with
1 when the measured peak exceeds the stated one.

    python benchmarks/gemma4_layer.py [--scale 1] [--tokens 256] [--groups qkv,o,gate_up,down|head]

`--scale 4` divides every dimension by four.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from twofold.engine.quantize.assemble import packed_rows
from twofold.engine.quantize.cost import head_peak_bytes, layer_peak_bytes
from twofold.engine.quantize.group import FillHessian, make_rotations, quantize_group, quantize_slices
from twofold.engine.quantize.hessian import Hessian
from twofold.engine.quantize.lloyd_max import GAUSSIAN
from twofold.engine.quantize.rotation import Rotation
from twofold.profiles.model_spec import LinearGroup, LinearSpec

BITS = 6


def layer_groups(scale: int) -> tuple[LinearGroup, ...]:
    """The four groups of a sliding layer, every dimension divided by `scale`."""
    hidden, q, kv, mlp = 5376 // scale, 8192 // scale, 4096 // scale, 21504 // scale

    def group(name: str, inputs: int, **members: int) -> LinearGroup:
        return LinearGroup(name, tuple(LinearSpec(f"{name}.{m}", inputs, rows) for m, rows in members.items()))

    return (
        group("qkv", hidden, q=q, k=kv, v=kv),
        group("o", q, o=hidden),
        group("gate_up", hidden, gate=mlp, up=mlp),
        group("down", mlp, down=hidden),
    )


def _peak_bytes() -> int:
    """This program's own peak: ru_maxrss also remembers the process that started it, VmHWM does not."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def head_group(scale: int) -> LinearGroup:
    """The LM head, both dimensions divided by `scale`."""
    return LinearGroup("head", (LinearSpec("lm_head", 5376 // scale, 262144 // scale),))


def _filler(generator: torch.Generator, group: LinearGroup, tokens: int) -> FillHessian:
    def fill(hessian: Hessian, r_in: Rotation) -> None:
        for start in range(0, tokens, 2048):
            rows = torch.randn(min(2048, tokens - start), group.in_features, generator=generator)
            hessian.add(r_in.apply(rows))

    return fill


def run_head(head: LinearGroup, tokens: int) -> float:
    """Random rows through the step that the pipeline uses, packed slice by slice; the mean error of the bases."""
    generator = torch.Generator().manual_seed(0)
    fill = _filler(generator, head, tokens)

    def rows(start: int, stop: int) -> torch.Tensor:
        return torch.randn(stop - start, head.in_features, generator=generator).mul_(head.in_features**-0.5)

    rotations = make_rotations(0, head, is_head=True)
    errors = []
    for first, result in quantize_slices(head, rows, rotations, GAUSSIAN, BITS, fill, fill):
        for _ in packed_rows(head, first, result, BITS):
            errors.append(result.base_error)
    return sum(errors) / len(errors)


def run_group(group: LinearGroup, tokens: int, on_base: Callable[[dict[str, torch.Tensor]], None]) -> float:
    """Random weights and inputs through the step that the pipeline uses; the base's error."""
    generator = torch.Generator().manual_seed(0)
    weights: Mapping[str, torch.Tensor] = {
        m.name: torch.randn(m.out_features, m.in_features, generator=generator).mul_(m.in_features**-0.5)
        for m in group.members
    }

    fill = _filler(generator, group, tokens)
    rotations = make_rotations(0, group, is_head=False)
    return quantize_group(group, weights, rotations, GAUSSIAN, BITS, fill, fill, on_base).base_error


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=1, help="divide every dimension by this")
    parser.add_argument("--tokens", type=int, default=256, help="calibration rows")
    parser.add_argument("--groups", default="qkv,o,gate_up,down", help="which groups, or head")
    asked = parser.parse_args()
    head = head_group(asked.scale)
    groups = [group for group in (*layer_groups(asked.scale), head) if group.name in asked.groups.split(",")]
    layer = tuple(group for group in groups if group.name != head.name)
    stated = layer_peak_bytes(layer, BITS, asked.tokens) if layer else 0
    if head in groups:
        stated = max(stated, head_peak_bytes(head, BITS, asked.tokens))
    print(f"stated peak: {stated / 2**20:.0f} MiB", file=sys.stderr, flush=True)
    rows = []
    for group in groups:
        begin = time.perf_counter()
        kept: dict[str, torch.Tensor] = {}
        error = run_head(group, asked.tokens) if group == head else run_group(group, asked.tokens, kept.update)
        rows.append(
            {
                "group": group.name,
                "seconds": round(time.perf_counter() - begin, 1),
                "base_error": round(error, 4),
                "peak_mib": _peak_bytes() >> 20,
            }
        )
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        del kept
    measured = _peak_bytes()
    document = {
        "schema_version": 1,
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "scale": asked.scale,
        "tokens": asked.tokens,
        "stated_peak": {
            "value": stated,
            "unit": "B",
            "source": "reasoned",
            "by": "layer_peak_bytes and head_peak_bytes of engine.quantize.cost",
        },
        "measured_peak": {"value": measured, "unit": "B", "source": "measured", "by": "VmHWM", "n": 1},
        "groups": rows,
        "kept": measured <= stated,
    }
    print(json.dumps(document, indent=2))
    return 0 if measured <= stated else 1


if __name__ == "__main__":
    raise SystemExit(main())
