"""`FitReport`: the answer of `twofold fit`, for people (`cli`) and as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from twofold.planner.alternatives import Choice
from twofold.planner.command import FitCommand
from twofold.planner.curves import SpeedCurve
from twofold.planner.drafts import DraftComparison
from twofold.planner.evaluate import Evaluation, Verdict
from twofold.planner.host_needs import HostNeeds
from twofold.planner.llama_cpp import Alternative
from twofold.planner.machine import CardBudget, MachineBudget
from twofold.planner.nearest import NearPlan
from twofold.planner.pareto import Pareto
from twofold.planner.plan import Plan
from twofold.planner.quality import QualityClass, plan_class
from twofold.planner.quality_floor import FloorJudgement
from twofold.planner.rounding import RoundingGain
from twofold.planner.scopes import Scope
from twofold.planner.search.study import SearchResult
from twofold.planner.speed_terms import SpeedTerm
from twofold.profiles.figures import Figure, reasoned, unknown

SCHEMA_VERSION = 1
EXIT_CODES: dict[Verdict, int] = {"fits": 0, "tight": 3, "does_not_fit": 4, "unknown": 5}


def quality_class(plan: Plan) -> QualityClass:
    """The class that residual width and KV type belong to: q8, q6 or q4."""
    return plan_class(plan.residual_bits, plan.k_type, plan.v_type)


def _search_json(found: SearchResult | None) -> dict[str, object] | None:
    if found is None:
        return None
    return {
        "n_trials": found.n_trials,
        "n_infeasible": found.n_infeasible,
        "turn_s": found.outcome.seconds,
        "default_turn_s": found.baseline_outcome.seconds,
        "gain": round(found.gain, 4),
        "default_is_best": found.best == found.baseline,
    }


@dataclass(frozen=True, slots=True)
class FitReport:
    """Everything that `fit` found out.

    `others` are the machine's other cards, each judged alone. `choices` are all ways to have the model answer, ranked;
    `alternatives` are llama.cpp's in that order. `drafts` compares the ways to draft on the card; `scopes` are bits per
    weight by codec; `rounding` is what int8 activations would bring,
    where nobody asked and it is worth saying. `is_forced`: the exit code is 0 whatever the verdict.
    """

    model: str
    facts_source: str
    unverified: tuple[str, ...]
    machine: MachineBudget
    card: CardBudget | None
    evaluation: Evaluation
    others: tuple[tuple[str, Evaluation], ...]
    plan: Plan
    kl: Figure
    floor: FloorJudgement
    runnable: bool
    runnable_reason: str | None
    largest_context: Figure
    nearest: tuple[NearPlan, ...]
    choices: tuple[Choice, ...]
    alternatives: tuple[Alternative, ...]
    advice: str | None
    as_is: Alternative | None
    host_needs: HostNeeds | None
    download_mib: Figure
    disk_mib: Figure
    notes: tuple[str, ...]
    command: FitCommand
    speed_terms: tuple[SpeedTerm, ...] = ()
    search: SearchResult | None = None
    pareto: Pareto | None = None
    curves: tuple[SpeedCurve, ...] = ()
    is_forced: bool = False
    drafts: DraftComparison | None = None
    rounding: RoundingGain | None = None
    scopes: tuple[tuple[str, tuple[Scope, ...]], ...] = ()

    @property
    def verdict(self) -> Verdict:
        return self.evaluation.verdict

    @property
    def asked_for(self) -> str:
        """The model as it was asked for, which a command that is shown names again."""
        return self.command.model or self.model

    @property
    def exit_code(self) -> int:
        if self.is_forced:
            return 0
        is_below = self.floor.state == "not_met" and self.verdict in ("fits", "tight")
        return EXIT_CODES["does_not_fit" if is_below else self.verdict]

    @property
    def shortfall_mib(self) -> Figure:
        """What is missing on the device that is shortest; unknown where a free figure is."""
        known = [device.shortfall_mib for device in self.evaluation.devices]
        figures = [figure for figure in known if figure is not None]
        if len(figures) < len(known) or not figures:
            return unknown("MiB", "the free memory is unknown")
        return max(figures, key=lambda figure: figure.number)

    def _memory_json(self) -> dict[str, object]:
        no_card = reasoned(0, "MiB", "the plan uses no card").to_json()
        vram = self.evaluation.vram
        return {
            "vram": vram.to_json() if vram else {"total_mib": no_card},
            "ram": self.evaluation.ram.to_json(),
        }

    def _alternatives_json(self) -> list[dict[str, object]]:
        ranks = {choice.command: choice.to_json() for choice in self.choices}
        return [{**ranks.get(one.command, {}), **one.to_json()} for one in self.alternatives]

    def _rounding_json(self) -> dict[str, object] | None:
        if self.rounding is None:
            return None
        return self.rounding.to_json() | {"command": self.command.changed(self.rounding.options).text}

    def _pareto_json(self) -> dict[str, object]:
        if self.pareto is None:
            return {}
        return {
            "pareto": [point.to_json(self.model) for point in self.pareto.points],
            "pareto_note": self.pareto.note,
        }

    def to_json(self) -> dict[str, object]:
        """The document of `fit --format json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "verdict": self.verdict,
            "runnable": self.runnable,
            "runnable_reason": self.runnable_reason,
            "quality": quality_class(self.plan),
            "kl": self.kl.to_json(),
            "min_quality": self.floor.name,
            "quality_floor": self.floor.state,
            "quality_floor_reason": self.floor.words,
            "plan": self.plan.model_dump(mode="json"),
            "memory": self._memory_json(),
            "devices": [device.to_json() for device in self.evaluation.devices],
            "other_cards": [{"name": name, "verdict": found.verdict} for name, found in self.others],
            "speed": self.evaluation.speed.to_json(),
            "speed_terms": {name: figure.to_json() for name, figure in self.speed_terms},
            "observed": self.evaluation.observed.to_json() if self.evaluation.observed else None,
            "shortfall_mib": self.shortfall_mib.to_json(),
            "largest_context": self.largest_context.to_json(),
            "nearest": [plan.to_json(self.model, self.command) for plan in self.nearest],
            "choices": [one.to_json() for one in self.choices],
            "alternatives": self._alternatives_json(),
            "advice": self.advice,
            "as_is": self.as_is.to_json() if self.as_is else None,
            "host_needs": self.host_needs.to_json() if self.host_needs else None,
            "download_mib": self.download_mib.to_json(),
            "disk_mib": self.disk_mib.to_json(),
            "machine": self.machine.to_json(),
            "facts_source": self.facts_source,
            "unverified": list(self.unverified),
            "other_activations": self._rounding_json(),
            "drafts": self.drafts.to_json() if self.drafts else None,
            "bits_per_weight": {codec: [one.to_json() for one in scopes] for codec, scopes in self.scopes},
            "command": self.command.text,
            "is_forced": self.is_forced,
            "search": _search_json(self.search),
            **self._pareto_json(),
            "notes": list(self.notes),
        }
