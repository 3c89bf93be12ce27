"""`Knobs`: one point of the space that the planner searches. A plan is knobs plus what they are expected to need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from twofold.planner.plan import KvType, Plan
from twofold.profiles.activations import PLANES, USUAL, Activations


@dataclass(frozen=True, slots=True)
class Knobs:
    """Everything that `evaluate` needs besides model and machine.

    `resident` names the fused Linears whose residual is in VRAM (empty on the CPU). Quality knobs are
    `residual_bits`, `k_type`, `v_type`, `activations`; the others change speed and memory only.
    """

    device: Literal["cpu", "cuda"]
    context_tokens: int
    residual_bits: int
    k_type: KvType
    v_type: KvType
    resident: tuple[str, ...]
    draft_nodes: int
    draft_depth: int
    prefill_chunk: int
    threads: int
    cpu_isa: str
    activations: Activations = USUAL
    lookup_nodes: int = 0
    lookup_least: float = 0.0

    @property
    def tree_rows(self) -> int:
        """Rows of a verify pass of the draft tree: what a step's time is counted with."""
        return self.draft_nodes + 1

    @property
    def rows(self) -> int:
        """Rows of the widest verify pass: what room is kept for."""
        return max(self.draft_nodes, self.lookup_nodes) + 1

    @property
    def planes(self) -> tuple[int, int]:
        """int8 products per weight of the base, and of the residual."""
        return PLANES[self.activations]

    @property
    def largest_pass(self) -> int:
        return max(self.prefill_chunk, self.rows)

    @property
    def live_states(self) -> int:
        """Copies of a recurrent state: the committed one, and one to replay branches in while a tree is checked."""
        return 2 if self.rows > 1 else 1

    def with_(self, **changes: object) -> Knobs:
        return replace(self, **changes)  # type: ignore[arg-type]

    @classmethod
    def of(cls, plan: Plan) -> Knobs:
        """What a plan decided."""
        return cls(
            device=plan.device,
            context_tokens=plan.context_tokens,
            residual_bits=plan.residual_bits,
            k_type=plan.k_type,
            v_type=plan.v_type,
            resident=plan.resident_linears,
            draft_nodes=plan.draft_nodes,
            draft_depth=plan.draft_depth,
            prefill_chunk=plan.prefill_chunk,
            threads=plan.threads,
            cpu_isa=plan.cpu_isa,
            activations=plan.activations,
            lookup_nodes=plan.lookup_nodes,
            lookup_least=plan.lookup_least,
        )

    def to_plan(self, model: str, ram_mib: float, vram_mib: float) -> Plan:
        return Plan(
            model=model,
            device=self.device,
            context_tokens=self.context_tokens,
            residual_bits=self.residual_bits,
            k_type=self.k_type,
            v_type=self.v_type,
            activations=self.activations,
            resident_linears=self.resident,
            draft_nodes=self.draft_nodes,
            draft_depth=self.draft_depth,
            lookup_nodes=self.lookup_nodes,
            lookup_least=self.lookup_least,
            prefill_chunk=self.prefill_chunk,
            threads=self.threads,
            cpu_isa=self.cpu_isa,
            expected_ram_mib=round(ram_mib, 3),
            expected_vram_mib=round(vram_mib, 3),
        )
