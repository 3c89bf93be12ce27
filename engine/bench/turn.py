"""Samples of the two parts of a turn for the tuner: a prefill pass and a whole step behind a half-full cache.

Every sample is a real pass of the engine at the depth where a conversation spends its time. The cache is filled once
by repeating the rows of a short real text, since how long a pass takes depends on how much it reads and not on what.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from twofold.engine.backend import Choice
from twofold.engine.bench.decode import Setting, time_decoding, tokens_per_check
from twofold.engine.bench.prompts import BenchTexts, Kind
from twofold.engine.bench.rounds import Rule
from twofold.engine.draft import DraftTree
from twofold.engine.engine import Engine
from twofold.planner.acceptance import RankStatistics, tree_shape
from twofold.planner.plan import Plan

Part = Literal["prefill", "step"]
SEED_TOKENS = 64
"""Rows that are computed for real and repeated."""
DECODE_CONTEXT = 1024
WARM_SECONDS = 1.0
WARM_RUNS = 5
WARM_CHANGE = 0.1


class TurnBench:
    """Measures plans of one checkpoint; one engine is open at a time and made anew only when a plan needs a wider one.

    Args:
        path: the checkpoint.
        texts: real texts; the long prose has at least as many tokens as the prompt.
        depth: cached tokens that every sample runs behind.
        prompt: tokens of the prompt; no prefill pass is longer.
        statistics: what shapes the draft trees.
        fits: whether a plan fits in memory (asked about the engine that serves several plans).
    """

    def __init__(
        self,
        path: Path,
        texts: Mapping[Kind, BenchTexts],
        depth: int,
        prompt: int,
        statistics: RankStatistics,
        fits: Callable[[Plan], bool] = lambda _: True,
        *,
        kernels: Choice = "auto",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._path, self._depth, self._prompt = path, depth, prompt
        self.texts, self.kernels = texts, kernels
        self._text = list(texts["prose"].long)
        self._statistics, self._fits, self._clock = statistics, fits, clock
        self._engine: Engine | None = None
        self._trees: dict[tuple[int, int], DraftTree] = {}
        self._warm: set[tuple[object, ...]] = set()

    def measure(self, plan: Plan, part: Part) -> float:
        """Seconds of one prefill pass of the plan's chunk, or of one step with its tree.

        The first sample of its kind comes after passes that are thrown away: until two agree within a tenth, or for a
        second. A pass that takes longer than that has warmed up by itself.
        """
        engine = self._serving(plan)
        self._set_threads(engine, plan)
        run = self._runner(engine, plan, part)
        kind = (part, plan.threads, *self._knobs(plan, part))
        if kind not in self._warm:
            self._warm.add(kind)
            slow = self._warm_up(run)
            if slow is not None:
                return slow
        return self._time(run)

    def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        self._warm.clear()

    def _knobs(self, plan: Plan, part: Part) -> tuple[int, ...]:
        return (plan.prefill_chunk,) if part == "prefill" else (plan.draft_nodes, plan.draft_depth)

    def _runner(self, engine: Engine, plan: Plan, part: Part) -> Callable[[], object]:
        if part == "prefill":
            rows = self._text[: min(plan.prefill_chunk, self._prompt)]
            return lambda: engine.dry_prefill(rows)
        knobs = (plan.draft_nodes, plan.draft_depth)
        if knobs not in self._trees:
            self._trees[knobs] = DraftTree(tree_shape(self._statistics, *knobs, engine.spec.vocab_size))
        tree = self._trees[knobs]
        return lambda: engine.dry_step(tree)

    def _time(self, run: Callable[[], object]) -> float:
        start = self._clock()
        run()
        return max(self._clock() - start, 1e-9)

    def _warm_up(self, run: Callable[[], object]) -> float | None:
        """Run until stable; the seconds of a run so long that it counts."""
        spent = before = self._time(run)
        if before >= WARM_SECONDS:
            return before
        for _ in range(WARM_RUNS):
            now = self._time(run)
            spent += now
            if abs(now - before) <= WARM_CHANGE * before or spent >= WARM_SECONDS:
                break
            before = now
        return None

    def _serving(self, plan: Plan) -> Engine:
        """An engine whose passes are wide enough for the plan, under its quality knobs, filled to the depth."""
        engine = self._engine
        if engine is not None:
            own = engine.plan
            is_wide = own.prefill_chunk >= plan.prefill_chunk and own.draft_nodes >= plan.draft_nodes
            quality = [(one.k_type, one.v_type, one.activations) for one in (own, plan)]
            if is_wide and quality[0] == quality[1]:
                return engine
            wider = {
                "prefill_chunk": max(own.prefill_chunk, plan.prefill_chunk),
                "draft_nodes": max(own.draft_nodes, plan.draft_nodes),
            }
            union = plan.model_copy(update=wider)
            plan = union if self._fits(union) else plan
            self.close()
        self._engine = engine = Engine.load(self._path, plan, kernels=self.kernels, statistics=self._statistics)
        self._fill(engine)
        return engine

    def _fill(self, engine: Engine) -> None:
        if self._depth < 1:
            engine.prefill(self._text[:1])
            return
        n_real = min(SEED_TOKENS, self._depth, len(self._text) - 1)
        engine.prefill(self._text[: n_real + 1])
        if self._depth > n_real:
            engine.repeat_cached(self._depth)

    def _set_threads(self, engine: Engine, plan: Plan) -> None:
        """The native pool is the process's: plans that differ in threads take turns with it."""
        if engine.backend.name != "cpu":
            return
        from twofold.kernels.cpu import native

        if native().threads() != plan.threads:
            native().set_threads(plan.threads)


def decoded_tokens_per_check(
    path: Path,
    plans: Sequence[Plan],
    texts: Mapping[Kind, BenchTexts],
    statistics: RankStatistics,
    *,
    n_tokens: int = 24,
    rounds: int = 3,
    kernels: Choice = "auto",
) -> list[float] | None:
    """Tokens that a check of each plan's tree gives on real greedy answers to the shipped prompts; None where the
    context is too short for them.

    Raises:
        EngineFailed: the plans' texts differ, though only speed knobs do.
    """
    context = min(min(plan.context_tokens for plan in plans), DECODE_CONTEXT)
    usable = {kind: _that_fit(texts[kind], context - n_tokens) for kind in texts}
    if not all(one.chats for one in usable.values()):
        return None
    engines = []
    try:
        for plan in plans:
            short = plan.model_copy(
                update={"context_tokens": context, "prefill_chunk": min(plan.prefill_chunk, context)}
            )
            engines.append(Engine.load(path, short, kernels=kernels, statistics=statistics))
        settings = [Setting(f"plan {index}", engine) for index, engine in enumerate(engines)]
        time_decoding(settings, usable, n_tokens, Rule(repeats=rounds))
        return [float(tokens_per_check(setting).number) for setting in settings]
    finally:
        for engine in engines:
            engine.close()


def _that_fit(texts: BenchTexts, most: int) -> BenchTexts:
    return BenchTexts(tuple(chat for chat in texts.chats if len(chat) <= most), texts.long)
