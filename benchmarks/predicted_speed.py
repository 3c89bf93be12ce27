"""Predicted against measured speed of eight plans of SmolLM2: bits, trees, KV types, contexts.

Run: python benchmarks/predicted_speed.py [--threads N] [--prompts 32] [--time-kernels]. One JSON document; exits 1
where a plan's tokens per second are off by more than 10 %, or the plan that the planner chooses is more than 5 % slower
than the best measured one of its group.

Predictions come from `twofold bench MODEL --kernels` alone (`--time-kernels` times the kernels first), and from ranks
counted on other prompts than those measured. All plans answer in turn, prompt by prompt. Seconds are the processor time
of the thread that takes part in every operation and spins while it waits (`--clock wall` for an idle machine).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from twofold.engine.backend import choose_backend
from twofold.engine.checkpoint import Checkpoint
from twofold.engine.engine import Engine
from twofold.engine.text import ChatTemplate, Tokenizer
from twofold.kernels.cpu import native
from twofold.planner.acceptance import MeasuredRanks, RankStatistics, tree_shape
from twofold.planner.draft_choice import LEAST_GAIN
from twofold.planner.knobs import Knobs
from twofold.planner.plan import KvType, Plan
from twofold.planner.timed.curve import Estimate
from twofold.planner.timed.passes import TimedPasses, timed_passes
from twofold.planner.timed.source import KernelSource
from twofold.profiles.kernel_store import own_timings, save_timings
from twofold.profiles.series import iqr

SCHEMA_VERSION = 1
BAR, CHOICE_BAR = 0.10, 0.05
ROOM = 192
"""Positions of a context for the prompt and its answer; what comes before is an earlier conversation."""
LEAST_COUNTS = 30
PLAIN_PROMPTS, PLAIN_TOKENS = 12, 12
"""Of plans without a draft, whose steps all cost the same."""


@dataclass(slots=True)
class Case:
    """One plan: what it is, and the steps that were measured."""

    name: str
    bits: int
    kv: KvType
    context: int
    nodes: int = 0
    depth: int = 0
    in_choice: bool = False
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    by_prompt: list[float] = field(default_factory=list)

    def plan(self, threads: int, context_length: int) -> Plan:
        return Plan(
            model="smollm2",
            device="cpu",
            context_tokens=min(self.context + ROOM, context_length),
            residual_bits=self.bits,
            k_type=self.kv,
            v_type=self.kv,
            resident_linears=(),
            draft_nodes=self.nodes,
            draft_depth=self.depth,
            prefill_chunk=64,
            threads=threads,
            cpu_isa="auto",
            expected_ram_mib=1.0,
            expected_vram_mib=0.0,
        )


def cases(own: int, other: int, long: int) -> list[Case]:
    """The eight. `own` and `other` are the residual widths of the two checkpoints, `long` the longest context."""
    return [
        Case(f"{own} bit, no draft, f16, 512", own, "f16", 512, in_choice=True),
        Case(f"{own} bit, chain of 4, f16, 512", own, "f16", 512, 4, 4, in_choice=True),
        Case(f"{own} bit, tree of 8, f16, 512", own, "f16", 512, 8, 4, in_choice=True),
        Case(f"{own} bit, tree of 16, f16, 512", own, "f16", 512, 16, 5, in_choice=True),
        Case(f"{own} bit, no draft, f16, {long}", own, "f16", long),
        Case(f"{own} bit, no draft, q8_0, {long}", own, "q8_0", long),
        Case(f"{own} bit, chain of 2, q4_0, 1024", own, "q4_0", 1024, 2, 2),
        Case(f"{other} bit, no draft, q8_0, 1024", other, "q8_0", 1024),
    ]


def all_prompts() -> list[str]:
    """Every prompt that ships, in a fixed random order: the first half is counted, the second measured."""
    data = files("twofold.engine") / "data"
    bench = [
        json.loads(line)["prompt"] for line in (data / "bench_prompts.jsonl").read_text("utf-8").splitlines() if line
    ]
    others = [line for line in (data / "calibration_prompts.txt").read_text("utf-8").splitlines() if line.strip()]
    found = [*bench, *others]
    random.Random(0).shuffle(found)
    return found


class Texts:
    """Prompts behind an earlier conversation of a wanted length, as tokens."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer, self._template = tokenizer, template
        rows = (files("twofold.engine") / "data" / "smollm2_chat.jsonl").read_text("utf-8").splitlines()
        self._turns = [json.loads(row) for row in rows if row.strip()]

    def tokens(self, prompt: str, context: int) -> list[int]:
        """About `context` tokens: as many earlier turns as fit before the prompt, and the prompt."""
        messages: list[dict[str, str]] = []
        last = {"role": "user", "content": prompt}
        length = len(self._encode([last]))
        for turn in self._turns * 20:
            pair = [{"role": "user", "content": turn["prompt"]}, {"role": "assistant", "content": turn["answer"]}]
            longer = len(self._encode([*messages, *pair]))
            if length + longer > context:
                break
            messages += pair
        return self._encode([*messages, last])

    def _encode(self, messages: list[dict[str, str]]) -> list[int]:
        return list(self._template.encode(self._tokenizer, messages))


def count_ranks(
    engine: Engine, texts: Texts, prompts: Sequence[str], context: int, tokens: int, tell: Callable[[str], None]
) -> RankStatistics:
    """Rank frequencies by depth of the draft on `prompts`, along the accepted paths."""
    for i, prompt in enumerate(prompts):
        tell(f"counting ranks: prompt {i + 1} of {len(prompts)}")
        engine.prefill(texts.tokens(prompt, context))
        end = len(engine.tokens) + tokens
        while len(engine.tokens) < min(end, engine.context_tokens - 1):
            engine.step()
    counts = [depth for depth in engine.ranks.counts if sum(depth) >= LEAST_COUNTS] or engine.ranks.counts[:1]
    tables = tuple(tuple(n / sum(depth) for n in depth[:-1]) for depth in counts)
    return MeasuredRanks(tables[0], 1.0, f"{sum(counts[0])} checks of {len(prompts)} other prompts", tables)


def measure(case: Case, engine: Engine, text: Sequence[int], tokens: int, clock: Callable[[], float]) -> None:
    """Decode behind `text`; the first step, which finds the caches as a prompt left them, is not counted."""
    engine.prefill(text)
    engine.step()
    end = min(len(engine.tokens) + tokens, engine.context_tokens - case.nodes - 1)
    seconds, n = 0.0, 0
    while len(engine.tokens) < end:
        case.lengths.append(len(engine.tokens))
        before = clock()
        result = engine.step()
        took = clock() - before
        case.seconds.append(took)
        case.tokens.append(len(result.tokens))
        seconds, n = seconds + took, n + len(result.tokens)
    if n:
        case.by_prompt.append(n / seconds)


def time_kernels(checkpoint: Checkpoint, plan: Plan, tell: Callable[[str], None]) -> None:
    """What `bench --kernels` keeps, without its other figures."""
    from twofold.cli.bench_kernels import CACHE_FACTOR, cache_bytes
    from twofold.engine.bench.timings import TimingBench

    backend = choose_backend("cpu", plan.threads, plan.cpu_isa)
    bench = TimingBench(
        checkpoint, backend, plan, CACHE_FACTOR * cache_bytes() or 1 << 40, tell=lambda what, _: tell(what)
    )
    save_timings(bench.run(str(native().active_tier())).timings)


def predict(case: Case, spec: Any, source: KernelSource, threads: int, context_length: int) -> TimedPasses:
    """The plan's passes from this machine's timed kernels.

    Raises:
        SystemExit: there are none for these threads.
    """
    knobs = Knobs.of(case.plan(threads, context_length)).with_(cpu_isa=str(native().active_tier()))
    found = timed_passes(spec, knobs, source.kernels_of(knobs))
    if found is None:
        raise SystemExit(
            f"no kernels were timed with {threads} threads of this build: twofold bench smollm2 --kernels --threads "
            f"{threads}, or --time-kernels here"
        )
    return found


def compare(case: Case, passes: TimedPasses, ranks: RankStatistics) -> dict[str, Any]:
    """One plan: predicted and measured seconds a step, tokens a check, and tokens per second."""
    shape = tree_shape(ranks, case.nodes, case.depth)
    step: Estimate = passes.step(shape, round(statistics.fmean(case.lengths)))
    seconds, checks = sum(case.seconds), len(case.seconds)
    per_check = sum(case.tokens) / checks
    measured, predicted = sum(case.tokens) / seconds, shape.tokens / step.likely
    return {
        "plan": case.name,
        "tok_s": {
            "predicted": round(predicted, 3),
            "measured": round(measured, 3),
            "ratio": round(predicted / measured, 4),
            "spread": round(iqr(case.by_prompt), 3),
            "prompts": len(case.by_prompt),
        },
        "step_ms": {
            "predicted": round(step.likely * 1e3, 3),
            "range": [round(step.low * 1e3, 3), round(step.high * 1e3, 3)],
            "measured_mean": round(seconds / checks * 1e3, 3),
            "measured_median": round(statistics.median(case.seconds) * 1e3, 3),
            "spread": round(iqr(case.seconds) * 1e3, 3),
            "ratio": round(step.likely / (seconds / checks), 4),
            "ratio_to_median": round(step.likely / statistics.median(case.seconds), 4),
            "n": checks,
        },
        "tokens_per_check": {
            "predicted": round(shape.tokens, 4),
            "measured": round(per_check, 4),
            "ratio": round(shape.tokens / per_check, 4),
        },
        "not_timed": sorted(step.gaps),
        "within_bar": abs(predicted / measured - 1) <= BAR,
    }


def choice(rows: Sequence[dict[str, Any]], found: Sequence[Case]) -> dict[str, Any]:
    """What the planner takes among the plans of one context and cache, and how it did."""
    group = [row for row, case in zip(rows, found, strict=True) if case.in_choice]
    plain = group[0]
    chosen = max(group, key=lambda row: row["tok_s"]["predicted"])
    if chosen["tok_s"]["predicted"] <= LEAST_GAIN * plain["tok_s"]["predicted"]:
        chosen = plain
    best = max(group, key=lambda row: row["tok_s"]["measured"])
    share = chosen["tok_s"]["measured"] / best["tok_s"]["measured"]
    return {
        "chosen": chosen["plan"],
        "best_measured": best["plan"],
        "chosen_over_best": round(share, 4),
        "within_bar": share >= 1 - CHOICE_BAR,
    }


def checkpoints(options: argparse.Namespace) -> tuple[Checkpoint, Checkpoint]:
    """SmolLM2 with two residual widths, made now where they are missing."""
    from pathlib import Path

    from twofold.cli.launch import checkpoint_of
    from twofold.cli.launch_options import LaunchOptions

    def one(given: str | None, bits: int) -> Checkpoint:
        path = Path(given) if given else checkpoint_of(LaunchOptions("smollm2", residual_bits=bits, assume_yes=True))
        if path is None:
            raise SystemExit("no checkpoint")
        return Checkpoint.open(path)

    return one(options.checkpoint, 6), one(options.other, options.other_bits)


def run(options: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, Any]:
    own, other = checkpoints(options)
    found = cases(own.config.residual_bits, other.config.residual_bits, options.long)
    length, threads = own.spec.context_length, options.threads
    backend = choose_backend("cpu", threads, None)
    if options.time_kernels:
        time_kernels(own, found[0].plan(threads, length), tell)
    source = KernelSource(own_timings(), is_own=True)
    passes = [predict(case, own.spec, source, threads, length) for case in found]
    tokenizer = Tokenizer.from_folder(own.path)
    texts = Texts(tokenizer, ChatTemplate.from_tokenizer(tokenizer))
    prompts = all_prompts()
    counted, timed = prompts[: len(prompts) // 2], prompts[len(prompts) // 2 :][: options.prompts]
    tree = next(case for case in found if case.nodes == 16)
    engine = Engine.of(own, tree.plan(threads, length), kernels="cpu")
    ranks = count_ranks(engine, texts, counted[: options.prompts], 512, options.tokens, tell)
    engine.close()
    clock = time.perf_counter if options.clock == "wall" else time.thread_time
    engines = []
    for case in found:
        checkpoint = own if case.bits == own.config.residual_bits else other
        engines.append(Engine.of(checkpoint, case.plan(threads, length), kernels="cpu", statistics=ranks))
    for i, prompt in enumerate(timed):
        for case, engine in list(zip(found, engines, strict=True))[:: 1 if i % 2 == 0 else -1]:
            if case.nodes == 0 and i >= PLAIN_PROMPTS:
                continue
            tell(f"prompt {i + 1} of {len(timed)}: {case.name}")
            tokens = options.tokens if case.nodes else min(options.tokens, PLAIN_TOKENS)
            measure(case, engine, texts.tokens(prompt, case.context), tokens, clock)
    rows = [compare(case, one, ranks) for case, one in zip(found, passes, strict=True)]
    kernels = source.kernels(str(native().active_tier()), threads, "int16")
    assert kernels is not None
    return {
        "schema_version": SCHEMA_VERSION,
        "clock": options.clock,
        "threads": threads,
        "isa": str(native().active_tier()),
        "kernels": source.words(kernels),
        "kernels_module": backend.name,
        "ranks": ranks.by,
        "plans": rows,
        "choice": choice(rows, found),
    }


def document(found: dict[str, Any]) -> dict[str, Any]:
    import os

    from twofold.cli.version import commit
    from twofold.probes.cpu import read_cpu

    cpu = read_cpu()
    machine = {"cpu": cpu.model.value, "usable_cpus": cpu.usable_cpus.value, "load_average": os.getloadavg()[0]}
    return {"commit": commit(), "machine": machine} | found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", help="a checkpoint of SmolLM2 (made with 6 bits where none is given)")
    parser.add_argument("--other", help="one of another residual width (made where none is given)")
    parser.add_argument("--other-bits", type=int, default=8, help="its width, where it is made (8)")
    parser.add_argument("--threads", type=int, default=0, help="of the kernels; all usable cores if not given")
    parser.add_argument("--prompts", type=int, default=32, help="how many are counted, and as many measured")
    parser.add_argument("--tokens", type=int, default=48, help="of an answer with drafts")
    parser.add_argument("--long", type=int, default=4096, help="the longest context (4096)")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--time-kernels", action="store_true", help="time the kernels first, and keep them")
    options = parser.parse_args()
    if min(options.prompts, options.tokens) < 1 or options.threads < 0:
        parser.error("--prompts and --tokens are at least 1")
    if not options.threads:
        from twofold.cli.fit_options import local_machine

        host = local_machine().host
        options.threads = host.threads if host else 1
    started = time.perf_counter()
    found = run(options, lambda what: print(f"[{time.perf_counter() - started:6.1f} s] {what}", file=sys.stderr))
    print(json.dumps(document(found), indent=2))
    return 0 if all(row["within_bar"] for row in found["plans"]) and found["choice"]["within_bar"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
