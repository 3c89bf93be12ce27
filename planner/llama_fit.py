"""`fit --engine llama.cpp`: what one GGUF file takes on a card in a given run, and whether that is there.

The estimate is calibrated by reported peaks of the same file where there are any, else it is the file's weights and
the range of constants that reported runs left over.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from twofold.planner.evaluate import DeviceVerdict, Verdict, judge
from twofold.planner.kv import KV_BLOCKS
from twofold.planner.llama_cpp import LLAMA_EFFICIENCY, QUANTS
from twofold.planner.llama_run import LlamaRun, run_terms
from twofold.planner.machine import CardBudget, MachineBudget, card_problem
from twofold.planner.memory import CUDA_CONTEXT_MIB, DeviceMemory, Term, estimate
from twofold.planner.named_files import NamedWeights, named_weights
from twofold.planner.named_sizes import refuse_other_size
from twofold.planner.observed import (
    ENGINE,
    HEAD_SPREAD_MIB,
    Calibration,
    calibrate,
    draft_head_mib,
    is_same_card,
    stated_weights_mib,
)
from twofold.planner.report import EXIT_CODES, SCHEMA_VERSION
from twofold.planner.request import DEFAULT_MARGIN_MIB
from twofold.planner.ternary import TERNARY
from twofold.profiles.errors import InvalidOption
from twofold.profiles.figures import Figure, reasoned, reported, unknown
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.observations import Observation
from twofold.profiles.readers.shipped import shipped_specs
from twofold.profiles.units import MIB

OBSERVED_MARGIN_MIB = 128.0
"""Kept free beside an estimate that was calibrated by an observed run, where the user gives no margin."""
CONTEXT_STEP = 1024
VISION_COMPUTE_MIB = (0.0, 300.0, 900.0)
"""Before the first image, one of about a megapixel, one of four."""


@dataclass(frozen=True, slots=True)
class LlamaFile:
    """The GGUF file: its name as observations have it, and the MiB of its weights on the card where known; the MiB of a
    vision projector's file beside it, where there is one.
    """

    name: str | None = None
    weights_mib: float | None = None
    mmproj_mib: float | None = None


@dataclass(frozen=True, slots=True)
class NearRun:
    """A run that fits instead, and what was changed."""

    change: str
    run: LlamaRun
    vram_mib: float


@dataclass(frozen=True, slots=True)
class LlamaFit:
    """The answer. `devices` holds one verdict for each card; `device` is the card that the answer is about."""

    model: str
    file: LlamaFile
    run: LlamaRun
    machine: MachineBudget
    card: CardBudget
    device: DeviceVerdict
    others: tuple[DeviceVerdict, ...]
    calibration: Calibration | None
    tok_s: Figure
    nearest: tuple[NearRun, ...]
    command: str
    notes: tuple[str, ...]
    is_margin_given: bool = False

    @property
    def verdict(self) -> Verdict:
        return self.device.verdict

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def margin_words(self) -> str:
        """The margin and why it is that much."""
        mib = f"{self.device.margin_mib:,.0f} MiB"
        if self.is_margin_given:
            return f"{mib}, as stated by --margin"
        seen, unseen = f"{OBSERVED_MARGIN_MIB:g}", f"{DEFAULT_MARGIN_MIB:g}"
        if self.calibration is None:
            return f"{mib}: no reported run calibrates the estimate (else {seen}); --margin states another"
        return f"{mib}: a reported run of this file calibrates the estimate (else {unseen}); --margin states another"

    def to_json(self) -> dict[str, object]:
        """The document of `fit --engine llama.cpp --format json`."""
        shortfall = self.device.shortfall_mib or unknown("MiB", "the free memory is unknown")
        return {
            "schema_version": SCHEMA_VERSION,
            "engine": ENGINE,
            "model": self.model,
            "weights_name": self.file.name,
            "verdict": self.verdict,
            "runnable": False,
            "runnable_reason": "twofold plans for llama.cpp and does not start it",
            "plan": {
                "context_tokens": self.run.context_tokens,
                "k_type": self.run.kinds[0],
                "v_type": self.run.kinds[1],
                "draft_mtp": self.run.draft_mtp,
                "slots": self.run.slots,
                "micro_batch": self.run.micro_batch,
                "command": self.command,
            },
            "memory": {"vram": self.device.memory.to_json(), "ram": {}},
            "devices": [device.to_json() for device in (self.device, *self.others)],
            "speed": {"decode_tok_s": self.tok_s.to_json()},
            "shortfall_mib": shortfall.to_json(),
            "nearest": [_near_json(one) for one in self.nearest],
            "alternatives": [],
            "calibration": _calibration_json(self.calibration),
            "margin": self.margin_words,
            "machine": self.machine.to_json(),
            "notes": list(self.notes),
        }


def _near_json(one: NearRun) -> dict[str, object]:
    return {
        "change": one.change,
        "context_tokens": one.run.context_tokens,
        "kv": one.run.kind_words,
        "draft_mtp": one.run.draft_mtp,
        "vram_mib": reasoned(round(one.vram_mib, 1), "MiB", "sum of the terms").to_json(),
    }


def _calibration_json(found: Calibration | None) -> dict[str, object] | None:
    if found is None:
        return None
    return {
        "observation": found.nearest.id,
        "source": found.nearest.source,
        "by": found.by,
        "n_observations": found.n_observations,
        "set_aside": list(found.set_aside),
        "spread_mib": found.spread_mib,
    }


def _calibrated_terms(found: Calibration) -> list[Term]:
    by = f"{found.by}; {found.n_observations} observations of the file"
    spread = found.spread_mib
    point = found.weights_and_constant_mib
    terms = [estimate("weights_and_runtime", "vram", (point - spread, point, point + spread), by)]
    if found.head_mib:
        how = "added" if found.head_mib > 0 else "taken off"
        by = f"the draft head's weights and context, {how}: no observation of the file has the same use of it"
        terms.append(estimate("draft_head", "vram", (found.head_mib,) * 3, by))
    return terms


def _named(spec: ModelSpec, name: str | None) -> NamedWeights:
    found = named_weights(spec, name or "")
    if found is None:
        raise InvalidOption(
            "nothing is known about this file",
            found=f"no observation of {name!r}" if name else "no file is named",
            needed=f"its weights on the card in MiB, or a name with one of {', '.join(QUANTS + TERNARY)} in it",
            hint="--weights-mib N (llama.cpp prints it as the model buffer's size), or --weights-name NAME",
        )
    return found


def _head_term(spec: ModelSpec, named: NamedWeights | None, plain_mib: float, seen: Sequence[Observation]) -> Term:
    """The draft head of a file that nobody observed."""
    if named is not None and named.draft_head is not None:
        low, high = (size / MIB for size in named.draft_head)
        return estimate("draft_head", "vram", (low, high, high), "the draft head's tensors as published")
    head = draft_head_mib(spec, plain_mib, seen)
    low, high = max(0.0, head - HEAD_SPREAD_MIB), head + HEAD_SPREAD_MIB
    return estimate("draft_head", "vram", (low, head, high), "the draft head's weights and its context")


def _reasoned_terms(spec: ModelSpec, file: LlamaFile, run: LlamaRun, observations: Sequence[Observation]) -> list[Term]:
    named = None
    if file.weights_mib is not None:
        weights = estimate("weights", "vram", (file.weights_mib,) * 3, "--weights-mib")
    elif file.name is not None and (stated := stated_weights_mib(spec, file.name, observations)) is not None:
        by = "the file's size as reported, less the embedding"
        weights = estimate("weights", "vram", (stated * 0.97, stated, stated * 1.03), by)
    else:
        named = _named(spec, file.name)
        mib, spread = named.weights.card / MIB, named.spread
        weights = estimate("weights", "vram", (mib * (1 - spread), mib, mib * (1 + spread)), named.by)
    by = "CUDA context and constant buffers: range of what reported peaks left over"
    terms = [weights, estimate("runtime", "vram", CUDA_CONTEXT_MIB, by)]
    if run.draft_mtp and file.weights_mib is None:
        terms.append(_head_term(spec, named, weights.bytes / MIB + CUDA_CONTEXT_MIB[1], observations))
    return terms


def memory_of(
    spec: ModelSpec, file: LlamaFile, run: LlamaRun, observations: Sequence[Observation], card: str | None
) -> tuple[DeviceMemory, Calibration | None]:
    """All terms on the card, and the calibration that they rest on.

    Raises:
        InvalidOption: the file has no observation, no stated size and no known quantisation in its name.
    """
    found = None
    if file.name is not None and file.weights_mib is None:
        found = calibrate(spec, run, file.name, observations, card)
    first = _calibrated_terms(found) if found is not None else _reasoned_terms(spec, file, run, observations)
    return DeviceMemory("vram", (*first, *run_terms(spec, run), *_vision_terms(file))), found


def _vision_terms(file: LlamaFile) -> list[Term]:
    """The projector's weights, and what an image computes with: nothing before the first, then for good."""
    if file.mmproj_mib is None:
        return []
    by = "--mmproj-mib: the projector's file"
    image = "buffers of one image; a report: 561 MiB were too little for four megapixels"
    return [
        estimate("vision_projector", "vram", (file.mmproj_mib,) * 3, by),
        estimate("vision_compute", "vram", VISION_COMPUTE_MIB, image),
    ]


def _fewer(spec: ModelSpec, run: LlamaRun) -> Iterator[tuple[str, LlamaRun]]:
    """Changes worth trying, the least painful first: a shorter draft, a smaller cache, a shorter context."""
    if run.draft_mtp:
        yield "no draft", replace(run, draft_mtp=0)
    kinds = list(KV_BLOCKS)
    for kind in kinds[kinds.index(run.kv_type) + 1 :]:
        yield f"KV {kind}", replace(run, kv_type=kind, v_type=None)
    tokens = run.context_tokens // 2
    while tokens >= CONTEXT_STEP:
        yield (
            f"context {tokens // CONTEXT_STEP * CONTEXT_STEP}",
            replace(run, context_tokens=tokens // CONTEXT_STEP * CONTEXT_STEP),
        )
        tokens //= 2


def _tok_s(found: Calibration | None, memory: DeviceMemory, card: CardBudget, run: LlamaRun) -> Figure:
    """Somebody's measurement of the same file, on the same card and with the same draft; else what the bytes allow."""
    seen = found.nearest if found is not None else None
    is_same = seen is not None and is_same_card(card.name, seen.gpu) and (seen.spec_n or 0) == run.draft_mtp
    if seen is not None and seen.tok_s is not None and is_same:
        draft = f"draft of {seen.spec_n}" if seen.spec_n else "no draft"
        theirs = f"of the run {seen.id} at {seen.ctx} tokens, KV {seen.kv}, {draft}, on {seen.gpu}: {seen.source}"
        if (seen.ctx, seen.kv) == (run.context_tokens, run.kind_words):
            return reported(seen.tok_s, "tok/s", theirs)
        return reported(seen.tok_s, "tok/s", f"{theirs}; this run: {run.context_tokens} tokens, KV {run.kind_words}")
    if not card.bandwidth_gb_s.is_known:
        return unknown("tok/s", f"the bandwidth of {card.name} is unknown: {card.bandwidth_gb_s.by}")
    read = memory.terms[0].bytes - (CUDA_CONTEXT_MIB[1] * MIB if found is not None else 0)
    slow, likely, fast = (card.bandwidth_gb_s.number * 1e9 * share / read for share in LLAMA_EFFICIENCY)
    draft = f": the draft of {run.draft_mtp} would add to it" if run.draft_mtp else ""
    by = f"bandwidth × {LLAMA_EFFICIENCY[0]:g} to {LLAMA_EFFICIENCY[2]:g} / weights, little context, no draft counted"
    return reasoned(round(likely, 2), "tok/s", by + draft, low=round(slow, 2), high=round(fast, 2))


def _command(file: LlamaFile, run: LlamaRun) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.name or "MODEL")
    words = ["llama-server", "-m", shlex.quote(f"{name}.gguf"), "-c", str(run.context_tokens)]
    words += ["-ctk", run.kinds[0], "-ctv", run.kinds[1], "-fa", "on", "-ngl", "99"]
    words += ["-ub", str(run.micro_batch), "-np", str(run.slots)]
    if file.mmproj_mib is not None:
        words += ["--mmproj", "MMPROJ.gguf"]
    return " ".join(words)


def _notes(machine: MachineBudget, found: Calibration | None, file: LlamaFile, run: LlamaRun) -> tuple[str, ...]:
    notes = list(machine.notes)
    if found is not None:
        notes.append(f"calibrated by {found.by}")
        if found.set_aside:
            notes.append(f"not used, as it disagrees with the file's other runs: {', '.join(found.set_aside)}")
    else:
        notes.append("no observed run of this file: weights and constant are estimates")
    notes.append("with all layers on the card, flash attention on")
    if file.mmproj_mib is None:
        notes.append("a vision projector is not counted: --mmproj-mib N (0.9 GB in 16 bits for a 27B) counts it")
    if run.draft_mtp:
        notes.append("the command leaves out the draft's options, which differ between builds")
    return tuple(notes)


def fit_llama(
    spec: ModelSpec,
    file: LlamaFile,
    run: LlamaRun,
    machine: MachineBudget,
    observations: Sequence[Observation],
    margin_mib: float | None,
) -> LlamaFit:
    """Judge `run` on every card of the machine, each alone; the answer is about the best.

    Args:
        margin_mib: MiB to keep free (None: 128 beside an observed run of the file, else 512).

    Raises:
        InvalidOption: no card, a context beyond the model's, a file that nothing is known about or that is of a model
            of another size.
    """
    if file.name is not None:
        refuse_other_size(spec, file.name, shipped_specs(), observations)
    if not machine.cards:
        raise InvalidOption("a card is needed", found="no card", hint="--card NAME")
    if run.context_tokens > spec.context_length:
        raise InvalidOption(
            f"the context is longer than {spec.name} allows",
            found=f"{run.context_tokens} tokens",
            needed=f"at most {spec.context_length} tokens",
            hint=f"--ctx {spec.context_length}",
        )
    if run.draft_mtp and not spec.draft_head_weights:
        raise InvalidOption(
            f"{spec.name} has no draft head", found=f"--draft-mtp {run.draft_mtp}", hint="leave out --draft-mtp"
        )

    def judged(card: CardBudget, one: LlamaRun) -> tuple[DeviceVerdict, Calibration | None]:
        memory, found = memory_of(spec, file, one, observations, card.name)
        margin = margin_mib if margin_mib is not None else OBSERVED_MARGIN_MIB if found else DEFAULT_MARGIN_MIB
        return judge(memory, card.name, card.free_mib, margin, card_problem(card)), found

    answers = [(card, *judged(card, run)) for card in machine.cards]
    card, device, found = min(answers, key=lambda answer: EXIT_CODES[answer[1].verdict])
    nearest = []
    if device.verdict in ("tight", "does_not_fit"):
        for change, one in _fewer(spec, run):
            verdict, _ = judged(card, one)
            if verdict.verdict == "fits":
                nearest.append(NearRun(change, one, verdict.memory.total / MIB))
    return LlamaFit(
        model=spec.name,
        file=file,
        run=run,
        machine=machine,
        card=card,
        device=device,
        others=tuple(verdict for other, verdict, _ in answers if other is not card),
        calibration=found,
        tok_s=_tok_s(found, device.memory, card, run),
        nearest=tuple(nearest[:3]),
        command=_command(file, run),
        notes=_notes(machine, found, file, run),
        is_margin_given=margin_mib is not None,
    )
