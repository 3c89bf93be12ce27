"""What `twofold tune` does with a model: trial 0, target and storage for the planner's tuner, real passes for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.cli.fill import Filled, fill_apart
from twofold.cli.launch import (
    check_memory,
    check_width,
    checkpoint_of,
    known_statistics,
    make_plan,
    rank_key,
    spec_of,
    with_draft,
)
from twofold.cli.launch_options import LaunchOptions
from twofold.cli.rounding import warn_of_slow_base
from twofold.cli.tuned import asked_cache, machine_identity, tuned_plan
from twofold.planner.tuning.cpu_turn import CpuTurn, other_widths, thread_choices
from twofold.planner.tuning.tuner import TRIALS, Stage, Tuner, TuneResult
from twofold.profiles.errors import InvalidOption

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

    from twofold.engine.bench.turn import TurnBench
    from twofold.engine.checkpoint import Checkpoint
    from twofold.engine.checkpoint.config import CheckpointConfig
    from twofold.planner.machine import HostBudget
    from twofold.planner.plan import KvType, Plan
    from twofold.planner.request import QualityFloor
    from twofold.planner.rounding import RoundingGain
    from twofold.planner.search.space import Point, Space
    from twofold.profiles.activations import Activations

Tell = Callable[[str, float], None]
_STAGES: dict[Stage, tuple[float, float]] = {
    "trial 0": (0.0, 0.1),
    "search": (0.1, 0.6),
    "race": (0.6, 0.75),
    "A/B": (0.75, 1.0),
}
_PASSES = 40
"""A prefill pass that takes more than this part of the budget is not tried."""
_WIDTH_PAYS = 0.03
_BUSY = 0.1
_MOST_JOURNAL = 16 << 20
"""Bytes; a longer journal is put aside, as reading it would take longer than what it tells is worth."""


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """How to search; None leaves it to the defaults."""

    min_quality: str | None
    trials: int | None
    budget: float
    storage: str | None
    seed: int


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What came out. `result` is None where nothing was measured; notes are for the reader."""

    plan: Plan
    trial0: Plan
    target: CpuTurn
    result: TuneResult | None
    tokens_by: str
    notes: tuple[str, ...]
    verification: Filled | None = None
    rounding: RoundingGain | None = None


@dataclass(frozen=True, slots=True)
class TuneJob:
    """A model that is open for tuning."""

    checkpoint: Checkpoint
    bench: TurnBench
    target: CpuTurn
    floor: QualityFloor | None
    options: LaunchOptions
    request: TuneRequest

    def run(self, tell: Tell) -> TuneReport:
        """Tune.

        Raises:
            KeyboardInterrupt: stopped; it was said what is kept.
            NotEnoughSpace: not even trial 0 fits. InvalidOption, TwofoldError: the storage cannot be used.
        """
        target, notes = self.target, []
        first = target.baseline
        check_memory(target.spec, target.default, self.options)
        storage = self._storage()
        try:
            tell("trial 0", 0.0)
            space, left_out = self._space()
            notes += [left_out] if left_out else []
            tuner = Tuner(
                space,
                target,
                first,
                n_trials=self.request.trials or TRIALS,
                seconds=self.request.budget,
                seed=self.request.seed,
                storage=storage,
                study_name=self._study_name(space),
                on_progress=lambda stage, share: tell(stage, _overall(stage, share)),
                on_finalists=self._decode,
            )
            try:
                result = tuner.run()
            except KeyboardInterrupt:
                self._say_kept(tuner.n_tried)
                raise
        finally:
            self.bench.close()
        found = target.plan(result.point).model_copy(update={"tuned": result.is_tuned})
        plan = found if result.n_others else self._known_plan()  # else nothing was compared
        notes += self._notes(result)
        points = (result.baseline, result.candidate)
        tokens_by = self._tokens_by(*points)
        return TuneReport(plan, target.default, target, result, tokens_by, tuple(notes), rounding=self._rounding(plan))

    def unmeasured(self) -> TuneReport:
        """The plan that a session would start with now, tuned or not."""
        plan = self._known_plan()
        by = self._tokens_by(self.target.baseline)
        notes = ("nothing was measured",)
        return TuneReport(plan, self.target.default, self.target, None, by, notes, rounding=self._rounding(plan))

    def _rounding(self, plan: Plan) -> RoundingGain | None:
        """What int8 activations would bring, where nobody asked for a rounding; reasoned, nothing more is measured."""
        from twofold.planner.evaluate import evaluate
        from twofold.planner.knobs import Knobs
        from twofold.planner.quality import checkpoint_kl, known_kl, measured_under
        from twofold.planner.rounding import OTHER, is_wide, rounding_gain
        from twofold.profiles.settings import get_settings

        target, made, knobs = self.target, self.checkpoint.config, Knobs.of(plan)
        is_asked = self.options.activations is not None or get_settings().activations is not None
        if is_asked or is_wide(knobs, target.host, made.base_levels, OTHER):
            return None
        kl, other_kl = (
            checkpoint_kl(measured_under(made.measured, made.activations, one)) for one in (plan.activations, OTHER)
        )
        kl = kl or known_kl(target.spec.name, knobs.residual_bits, knobs.k_type, knobs.v_type, knobs.activations)
        evaluation = evaluate(target.spec, knobs, None, target.host, target.margin_mib, target.statistics)
        facts = (target.spec, evaluation, None, target.host, self.floor, target.margin_mib, target.statistics)
        return rounding_gain(*facts, kl, other_kl)

    def _known_plan(self) -> Plan:
        """What a session starts with as long as nothing is kept: tuned at an earlier time, or trial 0."""
        from twofold.engine.plan_check import check_plan

        def check(plan: Plan) -> None:
            check_plan(plan, self.target.spec, self.checkpoint.config)

        known = tuned_plan(rank_key(self.checkpoint), self.target.default, self.options, check)
        return known or self.target.default

    def verify(self, report: TuneReport, tell: Tell) -> TuneReport:
        """Fill the plan's context in a process of its own; a plan that was filled is marked so."""
        from twofold.planner.plan import Verified

        self.bench.close()
        upper = self.target.need_mib(report.plan)
        filled = fill_apart(self.checkpoint.path, report.plan, upper, tell)
        plan = report.plan
        if filled.is_filled:
            seen = Verified(day=date.today().isoformat(), peak_mib=filled.peak_mib, expected_mib=plan.expected_ram_mib)
            plan = plan.model_copy(update={"verified": seen})
        return replace(report, plan=plan, verification=filled)

    def keep(self, report: TuneReport) -> Path | None:
        """Save the plan for later sessions, also trial 0 where nothing beat it: an earlier winner no longer holds then.

        None where it was neither compared nor filled.
        """
        from twofold.profiles.plan_store import TunedPlan, save_tuned

        is_compared = report.result is not None and report.result.n_others > 0
        is_filled = report.verification is not None and report.verification.is_filled
        if not is_compared and not is_filled:
            return None
        plan = report.plan
        return save_tuned(
            TunedPlan(
                rank_key(self.checkpoint),
                plan.context_tokens,
                asked_cache(self.options),
                plan.activations,
                machine_identity(),
                date.today().isoformat(),
                plan.model_dump(mode="json"),
            )
        )

    def _kv_types(self) -> tuple[KvType, ...]:
        if asked_cache(self.options) != "any" or self.floor is None:
            return (self.target.default.k_type,)
        return self.floor.kv_types

    def _space(self) -> tuple[Space, str | None]:
        """What is searched, and what is left out because a pass of it would take too long."""
        from twofold.profiles.settings import get_settings

        plan = self.target.default
        fixed = self.options.threads or get_settings().threads
        cores = self.target.host.threads if self.target.host is not None else plan.threads
        rows = min(plan.prefill_chunk, self.target.shape.prompt)
        row_seconds = self.bench.measure(plan, "prefill") / rows
        most = max(rows, int(self.request.budget / _PASSES / row_seconds))
        space = self.target.space(self._kv_types(), (fixed,) if fixed else thread_choices(cores), most)
        whole = self.target.space(self._kv_types(), (fixed,) if fixed else thread_choices(cores))
        missing = sorted(set(whole.prefill_chunks) - set(space.prefill_chunks))
        if not missing:
            return space, None
        return space, (
            f"prefill chunks of {missing[0]} tokens and more were left out: one pass would take over "
            f"{self.request.budget / _PASSES:.0f} s here (a larger --budget tries them)"
        )

    def _study_name(self, space: Space) -> str:
        """Model, machine and context for the reader, then a digest of all that the times depend on: only machines of
        one kind with one build share a study.
        """
        machine, plan = machine_identity(), self.target.default
        fixed = (plan.context_tokens, plan.v_type, plan.activations)
        words = (rank_key(self.checkpoint), sorted(machine.items()), *fixed, space.signature)
        digest = hashlib.sha256(repr(words).encode()).hexdigest()[:16]
        name = f"twofold tune {plan.model[:80]} on {machine['cpu'][:60]}, {machine['cores']} cores"
        return f"{name}, {machine['isa'][:20]}, {plan.context_tokens} tokens, {digest}"

    def _storage(self) -> BaseStorage:
        from twofold.planner.search.journal import journal
        from twofold.planner.search.storage import storage_from_url
        from twofold.profiles.settings import state_dir

        if self.request.storage is not None:
            return storage_from_url(self.request.storage)
        path = state_dir() / "studies" / f"{rank_key(self.checkpoint)}.journal"
        if path.is_file() and path.stat().st_size > _MOST_JOURNAL:
            path.replace(path.with_suffix(".old"))
        return journal(path)

    def _decode(self, first: Point, leader: Point) -> None:
        """Count tokens per check on real text where the finalists' trees differ."""
        from twofold.engine.bench.turn import decoded_tokens_per_check

        points, trees = (first, leader), [self.target.tree(point) for point in (first, leader)]
        if (trees[0].parents, trees[0].ranks) == (trees[1].parents, trees[1].ranks):
            return
        self.bench.close()
        # as the steps that are timed: without what is looked up in the text
        trees_alone = [
            self.target.plan(point).with_drafts(tree.nodes, tree.depth)
            for point, tree in zip(points, trees, strict=True)
        ]
        counted = decoded_tokens_per_check(
            self.checkpoint.path,
            trees_alone,
            self.bench.texts,
            self.target.statistics,
            kernels=self.bench.kernels,
        )
        for tree, tokens in zip(trees, counted or (), strict=counted is not None):
            self.target.decoded[tree.nodes, tree.depth] = tokens

    def _tokens_by(self, *points: Point) -> str:
        """Who says how many tokens a check gives."""
        if self.target.decoded:
            return "greedy answers to the shipped prompts, with both trees"
        has_draft = any(point.draft_nodes for point in points)
        return self.target.statistics.by if has_draft else "no draft: one token per check"

    def _notes(self, result: TuneResult) -> list[str]:
        target, point = self.target, result.point
        notes = []
        if len(self._kv_types()) == 1:
            why = "as asked for" if asked_cache(self.options) != "any" else "no --min-quality was given"
            notes.append(f"the cache type stays {target.knobs(point).k_type}: it changes the text, and {why}")
        if result.noise_floor > _BUSY:
            busy = f"the machine was busy: repeated turns differed by {100 * result.noise_floor:.0f} %"
            notes.append(f"{busy}; tune again when it is idle")
        bits = point.residual_bits
        notes.append(f"the residual stays at the checkpoint's {bits} bits: another width means quantising again")
        least = self.floor.min_residual_bits if self.floor is not None else 6
        pays = {width: gain for width, gain in other_widths(target, point, least).items() if gain >= _WIDTH_PAYS}
        if pays:
            width = max(pays, key=lambda one: pays[one])
            notes.append(
                f"{width} bits would save about {100 * pays[width]:.0f} % of a turn (reasoned from memory bandwidth): "
                f"twofold quantize {self.options.model} -o DIR --residual-bits {width}"
            )
        return notes

    def _say_kept(self, n_tried: int) -> None:
        from twofold.cli.output import err

        where = "the storage" if self.request.storage is not None else "the state folder"
        kept = f"{n_tried} trials are kept in {where}; the same command goes on from them"
        err().line(f"stopped: {kept if n_tried else 'nothing was tried yet'}")


def open_job(options: LaunchOptions, request: TuneRequest) -> TuneJob:
    """The model as `chat` opens it, untuned, and what measures it.

    Raises:
        TwofoldError: whatever stands in the way.
    """
    from twofold.cli.fit_options import local_machine
    from twofold.engine.bench.prompts import bench_texts
    from twofold.engine.bench.turn import SEED_TOKENS, TurnBench
    from twofold.engine.checkpoint import Checkpoint
    from twofold.engine.text import ChatTemplate, Tokenizer
    from twofold.planner.search.storage import check_url
    from twofold.profiles.settings import get_settings

    if request.storage is not None:
        check_url(request.storage)
    floor = _floor(request.min_quality)
    path = checkpoint_of(options)
    assert path is not None  # only a dry run has none
    checkpoint = Checkpoint.open(path)
    bits = checkpoint.config.residual_bits
    check_width(options, bits)
    spec = spec_of(checkpoint)
    default = make_plan(spec, bits, options, checkpoint.config.activations)
    floor = _known_floor(floor, checkpoint.config, spec.name, default.activations)
    _check_floor(floor, bits, default.activations, options)
    default = with_draft(checkpoint, default)
    warn_of_slow_base(options.model, path, checkpoint.config, default.activations)
    host, statistics = local_machine().host, known_statistics(checkpoint)
    bench: TurnBench

    def measure(plan: Plan, part: str) -> float:
        return bench.measure(plan, "prefill" if part == "prefill" else "step")

    target = CpuTurn(spec, default, host, float(get_settings().margin_mib), statistics, measure)
    shape = target.shape
    tokenizer = Tokenizer.from_folder(path)
    texts = bench_texts(tokenizer, ChatTemplate.from_tokenizer(tokenizer), shape.prompt + SEED_TOKENS + 1)
    bench = TurnBench(path, texts, shape.depth, shape.prompt, statistics, lambda plan: _has_room(target, plan, host))
    return TuneJob(checkpoint, bench, target, floor, options, request)


def _has_room(target: CpuTurn, plan: Plan, host: HostBudget | None) -> bool:
    return host is None or not host.available_mib.is_known or target.need_mib(plan) <= host.available_mib.number


def _floor(text: str | None) -> QualityFloor | None:
    from twofold.planner.request import QualityFloor
    from twofold.profiles.settings import get_settings

    wanted = text if text is not None else get_settings().min_quality
    return QualityFloor.parse(str(wanted)) if wanted is not None else None


def _known_floor(
    floor: QualityFloor | None, made: CheckpointConfig, model: str, activations: Activations
) -> QualityFloor | None:
    """A KL as the floor takes what was measured of the checkpoint.

    Raises:
        InvalidOption: nobody measured its KL.
    """
    from twofold.planner.quality import checkpoint_kl, known_kl, measured_under
    from twofold.planner.quality_floor import with_known_kl
    from twofold.planner.request import Request

    if floor is None or floor.kl is None:
        return floor
    bits = made.residual_bits
    kl = checkpoint_kl(measured_under(made.measured, made.activations, activations))
    kl = kl or known_kl(model, bits, "f16", "f16", activations)
    if not kl.is_known:
        option = "" if activations == made.activations else f" --activations {activations}"
        raise InvalidOption(
            f"the quality floor {floor.name} cannot be judged",
            found=f"no KL of this checkpoint ({bits} bits, {activations} activations)",
            hint=f"twofold eval MODEL{option} measures it",
        )
    request = Request(quality=floor, fixed_bits=bits, fixed_activations=activations)
    return with_known_kl(request, model, {(bits, activations): kl}).quality


def _check_floor(floor: QualityFloor | None, bits: int, activations: Activations, options: LaunchOptions) -> None:
    if floor is None:
        return
    if bits < floor.min_residual_bits:
        raise InvalidOption(
            f"the checkpoint is below the quality floor {floor.name}",
            found=f"{bits} residual bits",
            needed=floor.least_words,
            hint=f"twofold quantize MODEL -o DIR --residual-bits {floor.min_residual_bits}, or a lower --min-quality",
        )
    floor.refuse_activations(activations)
    asked = asked_cache(options)
    below = [kind for kind in asked.split("/") if asked != "any" and kind not in floor.kv_types]
    if below:
        raise InvalidOption(
            f"a {below[0]} cache is below the quality floor {floor.name}",
            found=below[0],
            needed=" or ".join(floor.kv_types),
            hint="drop --kv, or lower --min-quality",
        )


def _overall(stage: Stage, share: float) -> float:
    start, end = _STAGES[stage]
    return start + (end - start) * min(1.0, share)
