"""One synthetic layer of Gemma 4 31B's shapes through the real quantising step: peak memory stated in advance, and
kept.

A sliding layer: hidden 5376, 32 query heads of 256, 16 KV heads of 256, MLP 21504. Weights and inputs are random, the
calibration rows few: memory does not depend on what the numbers are. Prints JSON; exits with 1 when the measured peak
exceeds the stated one.

    python benchmarks/gemma4_layer.py [--scale 1] [--tokens 256] [--groups qkv,o,gate_up,down]

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

from twofold.engine.quantize.cost import layer_peak_bytes
from twofold.engine.quantize.group import QuantizedGroup, make_rotations, quantize_group
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


def run_group(group: LinearGroup, tokens: int, on_base: Callable[[dict[str, torch.Tensor]], None]) -> QuantizedGroup:
    """Random weights and inputs through the step that the pipeline uses."""
    generator = torch.Generator().manual_seed(0)
    weights: Mapping[str, torch.Tensor] = {
        m.name: torch.randn(m.out_features, m.in_features, generator=generator).mul_(m.in_features**-0.5)
        for m in group.members
    }

    def fill(hessian: Hessian, r_in: Rotation) -> None:
        for start in range(0, tokens, 2048):
            rows = torch.randn(min(2048, tokens - start), group.in_features, generator=generator)
            hessian.add(r_in.apply(rows))

    rotations = make_rotations(0, group, is_head=False)
    return quantize_group(group, weights, rotations, GAUSSIAN, BITS, fill, fill, on_base)


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=1, help="divide every dimension by this")
    parser.add_argument("--tokens", type=int, default=256, help="calibration rows")
    parser.add_argument("--groups", default="qkv,o,gate_up,down", help="which groups")
    asked = parser.parse_args()
    groups = [group for group in layer_groups(asked.scale) if group.name in asked.groups.split(",")]
    stated = layer_peak_bytes(tuple(groups), BITS, asked.tokens)
    print(f"stated peak: {stated / 2**20:.0f} MiB", file=sys.stderr, flush=True)
    rows = []
    for group in groups:
        begin = time.perf_counter()
        kept: dict[str, torch.Tensor] = {}
        result = run_group(group, asked.tokens, kept.update)
        rows.append(
            {
                "group": group.name,
                "seconds": round(time.perf_counter() - begin, 1),
                "base_error": round(result.base_error, 4),
                "peak_mib": _peak_bytes() >> 20,
            }
        )
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        del result, kept
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
            "by": "engine.quantize.cost.layer_peak_bytes",
        },
        "measured_peak": {"value": measured, "unit": "B", "source": "measured", "by": "VmHWM", "n": 1},
        "groups": rows,
        "kept": measured <= stated,
    }
    print(json.dumps(document, indent=2))
    return 0 if measured <= stated else 1


if __name__ == "__main__":
    raise SystemExit(main())
