"""Does the quantiser reach its bars? `twofold quantize` and `twofold eval` as a person runs them, over seeds.

Run: python benchmarks/quality_bars.py [--model smollm2] [--seeds 0,1,2] [--bits 6,7] [--keep DIR]. Prints one JSON
document (also written to DIR/quality_bars.json with --keep); exits 1 when a bar is missed, naming it on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
MAX_RATIO = {6: 1.05, 7: 0.5}
"""Mean over seeds of the verifier's KL over int8 group-32's in the same run, by residual width."""
INT8_KL = 0.0011
INT8_TOLERANCE = 0.10
MIN_RECALL_OWN_KV = 0.70
MIN_RECALL_EXACT_KV = 0.80
MAX_QUANTIZE_SECONDS = 120.0
MAX_QUANTIZE_RSS_GB = 2.5
TWOFOLD = str(Path(sys.executable).with_name("twofold"))


@dataclass(frozen=True, slots=True)
class Run:
    """One checkpoint. Recalls are at 1, depth 1; memory is the peak of the quantising process in 10⁹ bytes."""

    bits: int
    seed: int
    verifier_kl: float
    int8_kl: float
    ratio: float
    base_kl: float
    verifier_mismatch: float
    recall_own_kv: float
    recall_exact_kv: float
    tokens: int
    quantize_seconds: float
    quantize_peak_rss_gb: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, what was found, and whether it was reached."""

    name: str
    found: float
    needed: str
    reached: bool


def timed(command: list[str], log: Path) -> tuple[float, float]:
    """Wall seconds and peak resident 10⁹ bytes of a command, its own children included.

    Raises:
        SystemExit: when the command fails; its last words are shown.
    """
    start = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.stderr.write(log.read_text("utf-8", "replace")[-2000:])
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    return seconds, usage.ru_maxrss * 1024 / 1e9


def one_run(model: str, bits: int, seed: int, folder: Path) -> Run:
    """Quantise and evaluate once."""
    target = folder / f"r{bits}-s{seed}"
    how = ["--residual-bits", str(bits), "--seed", str(seed), "--yes", "--force"]
    seconds, rss_gb = timed([TWOFOLD, "quantize", model, "-o", str(target), *how], folder / "quantize.log")
    command = [TWOFOLD, "eval", str(target), "--source", model, "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {done.returncode}")
    report = json.loads(done.stdout)
    rows = report["rows"]
    verifier, int8 = rows["verifier"]["kl"]["value"], rows["int8_g32"]["kl"]["value"]
    return Run(
        bits=bits,
        seed=seed,
        verifier_kl=verifier,
        int8_kl=int8,
        ratio=verifier / int8,
        base_kl=rows["base"]["kl"]["value"],
        verifier_mismatch=rows["verifier"]["top1_mismatch"]["value"],
        recall_own_kv=report["draft"]["own_kv"][0],
        recall_exact_kv=report["draft"]["exact_kv"][0][0],
        tokens=report["tokens"],
        quantize_seconds=seconds,
        quantize_peak_rss_gb=rss_gb,
    )


def summary(runs: list[Run]) -> dict[str, Any]:
    """Mean and standard deviation over seeds (null for one seed), by residual width."""
    names = ("verifier_kl", "int8_kl", "ratio", "recall_own_kv", "recall_exact_kv", "quantize_seconds")
    found: dict[str, Any] = {}
    for bits in sorted({run.bits for run in runs}):
        same = [run for run in runs if run.bits == bits]
        found[str(bits)] = {name: _mean([getattr(run, name) for run in same]) for name in names}
    return found


def _mean(values: list[float]) -> dict[str, float | int | None]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "stdev": spread, "n": len(values)}


def bars(runs: list[Run]) -> list[Bar]:
    """Every bar with what was found; means over seeds where the bar is on a mean, else the worst run."""
    found = [
        _at_most(
            f"verifier KL over int8 g32, {bits}-bit residual, mean of seeds",
            statistics.fmean(run.ratio for run in runs if run.bits == bits),
            MAX_RATIO[bits],
        )
        for bits in sorted({run.bits for run in runs} & set(MAX_RATIO))
    ]
    worst: Callable[[list[float]], float] = lambda values: max(values, key=lambda kl: abs(kl - INT8_KL))  # noqa: E731
    int8 = worst([run.int8_kl for run in runs])
    low, high = INT8_KL * (1 - INT8_TOLERANCE), INT8_KL * (1 + INT8_TOLERANCE)
    found.append(Bar("int8 g32 KL", int8, f"{low:.5f} to {high:.5f}", low <= int8 <= high))
    own, exact = min(run.recall_own_kv for run in runs), min(run.recall_exact_kv for run in runs)
    found.append(Bar("recall@1 with its own KV", own, f"≥ {MIN_RECALL_OWN_KV}", own >= MIN_RECALL_OWN_KV))
    found.append(Bar("recall@1 with exact KV", exact, f"≥ {MIN_RECALL_EXACT_KV}", exact >= MIN_RECALL_EXACT_KV))
    slowest = max(run.quantize_seconds for run in runs)
    found.append(_at_most("seconds to quantise", slowest, MAX_QUANTIZE_SECONDS))
    largest = max(run.quantize_peak_rss_gb for run in runs)
    found.append(_at_most("peak memory of quantising, GB", largest, MAX_QUANTIZE_RSS_GB))
    return found


def _at_most(name: str, found: float, most: float) -> Bar:
    return Bar(name, found, f"≤ {most}", found <= most)


def machine() -> dict[str, Any]:
    """Where this ran, in words that identify nobody."""
    from twofold.probes.cpu import read_cpu

    cpu = read_cpu()
    return {
        "cpu": cpu.model.value,
        "usable_cpus": cpu.usable_cpus.value,
        "isa_tiers": cpu.isa_tiers.value,
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--seeds", default="0,1,2", help="quantiser seeds")
    parser.add_argument("--bits", default="6,7", help="residual widths")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep checkpoints and the result here")
    options = parser.parse_args()
    widths, seeds = ([int(part) for part in text.split(",")] for text in (options.bits, options.seeds))
    from twofold.cli.version import commit

    head = {"schema_version": SCHEMA_VERSION, "model": options.model, "commit": commit(), "machine": machine()}
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for bits in widths:
            for seed in seeds:
                runs.append(one_run(options.model, bits, seed, folder))
                print(f"{bits} bits, seed {seed}: ratio {runs[-1].ratio:.3f}", file=sys.stderr, flush=True)
    judged = bars(runs)
    document = head | {
        "runs": [asdict(run) for run in runs],
        "over_seeds": summary(runs),
        "bars": [asdict(bar) for bar in judged],
    }
    text = json.dumps(document, indent=2, allow_nan=False)
    print(text)
    if options.keep is not None:
        (options.keep / "quality_bars.json").write_text(text + "\n", encoding="utf-8")
    missed = [bar for bar in judged if not bar.reached]
    for bar in missed:
        print(f"missed: {bar.name}: {bar.found:.4g}, needed {bar.needed}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
