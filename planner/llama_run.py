"""What one run of llama.cpp keeps on a card beside its weights: the part that context, cache and draft decide.

The form was derived from reported peaks (CUDA, flash attention, all layers on the card): what is left of a peak once
these terms are subtracted is the same within 25 MiB over cards, cache types and contexts of one file. Those left-overs
(the weights and what a process takes however small its run is) are `planner.observed`'s subject.
"""

from __future__ import annotations

from dataclasses import dataclass

from twofold.planner.kv import cache_bytes
from twofold.planner.memory import Term, exact
from twofold.planner.plan import KvType
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

MICRO_BATCH = 512


@dataclass(frozen=True, slots=True)
class LlamaRun:
    """How llama.cpp is started. `draft_mtp` tokens are drafted by the file's own head (0: none), `slots` is `-np`;
    `v_type` is V's where it is not K's.
    """

    context_tokens: int
    kv_type: KvType
    draft_mtp: int = 0
    slots: int = 1
    micro_batch: int = MICRO_BATCH
    v_type: KvType | None = None

    @property
    def kinds(self) -> tuple[KvType, KvType]:
        """K's type and V's."""
        return self.kv_type, self.v_type or self.kv_type

    @property
    def kind_words(self) -> str:
        k, v = self.kinds
        return k if k == v else f"K {k}, V {v}"

    @property
    def live_states(self) -> int:
        """Copies of the recurrent state: one for each slot, and one more for each drafted position."""
        return self.slots * (1 + self.draft_mtp)


def _cache_terms(spec: ModelSpec, run: LlamaRun) -> list[Term]:
    cache = cache_bytes(
        spec,
        run.context_tokens,
        *run.kinds,
        largest_pass=run.micro_batch,
        live_copies=run.live_states,
    )
    kind = f"{run.context_tokens} tokens ({run.kind_words})"
    terms = [exact("kv", "vram", cache.growing, f"{cache.growing_per_token} B per token × {kind}")]
    if cache.sliding_per_token:
        by = f"{cache.sliding_per_token} B per token × min(context, window + {run.micro_batch}) × {run.slots} slots"
        terms.append(exact("kv_sliding", "vram", cache.sliding * run.slots, f"{by} ({run.kind_words})"))
    if cache.state_per_copy:
        by = f"{cache.state_per_copy} B per copy × {run.slots} slots × (1 + {run.draft_mtp} drafted)"
        terms.append(exact("recurrent_state", "vram", cache.recurrent, by))
    return terms


def run_terms(spec: ModelSpec, run: LlamaRun) -> tuple[Term, ...]:
    """Cache, recurrent state, attention mask, dequantisation scratch, and the draft head's own cache and mask."""
    tokens = run.context_tokens
    widest = max((layer.kv_values_per_token for layer in spec.layers), default=0)
    mask = tokens * run.micro_batch * 2
    terms = _cache_terms(spec, run)
    terms.append(exact("attention_mask", "vram", mask, f"{tokens} tokens × micro-batch of {run.micro_batch} × 2 B"))
    if run.kinds != ("f16", "f16"):
        by = f"{tokens} tokens × {widest} values × 2 B: one layer's cache in f16"
        terms.append(exact("dequantised_kv", "vram", tokens * widest * 2, by))
    if run.draft_mtp:
        terms.append(exact("draft_kv", "vram", tokens * widest * 2, f"{tokens} tokens × {widest} values × 2 B (f16)"))
        terms.append(exact("draft_mask", "vram", mask, "the draft head's own attention mask"))
    return tuple(terms)


def run_mib(spec: ModelSpec, run: LlamaRun) -> float:
    """The sum of `run_terms` in MiB."""
    return sum(term.bytes for term in run_terms(spec, run)) / MIB
