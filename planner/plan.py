"""`Plan`: everything that the engine needs to know to run a model, and nothing that it has to guess.

A plan is complete (no hidden default) and replayable: `twofold chat --plan plan.json` runs exactly it.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from twofold.profiles.activations import USUAL, Activations
from twofold.profiles.errors import InvalidProfile
from twofold.profiles.problems import problem_words

SCHEMA_VERSION: Final = 1
MAX_MIB: Final = float(1 << 30)
"""A pebibyte: no file may state more."""
KvType = Literal["f16", "q8_0", "q4_0"]


class Verified(BaseModel):
    """A plan that really filled its context: the day, the peak of the process's memory, what had been expected."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    day: str = Field(max_length=32)
    peak_mib: float = Field(ge=0)
    expected_mib: float = Field(ge=0)


class Plan(BaseModel):
    """A run, decided.

    Quality knobs (they change the text): `residual_bits`, `k_type`, `v_type`, `activations`. Speed knobs (they never
    change it): the rest. `resident_linears` names the fused Linears whose residual lives in VRAM; on a CPU-only machine
    it is empty. A file without `activations` is of before there was a choice, and means the usual ones.
    `lookup_nodes`: how many tokens a step may take from where the text's end stood before (a file without it: none);
    `lookup_least`: how likely each has to be (a file without it: not at all).
    `tuned`: found by measuring (`twofold tune`). `verified`: its context was really filled (`twofold tune --verify`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    schema_version: Literal[1] = SCHEMA_VERSION
    model: str = Field(min_length=1, max_length=4096)
    device: Literal["cpu", "cuda"]
    context_tokens: int = Field(ge=1, le=1 << 31)
    residual_bits: int = Field(ge=4, le=8)
    k_type: KvType
    v_type: KvType
    activations: Activations = USUAL
    resident_linears: tuple[str, ...]
    draft_nodes: int = Field(ge=0, le=1024)
    draft_depth: int = Field(ge=0, le=64)
    lookup_nodes: int = Field(default=0, ge=0, le=1024)
    lookup_least: float = Field(default=0.0, ge=0, le=1)
    prefill_chunk: int = Field(ge=1, le=65536)
    threads: int = Field(ge=1, le=4096)
    cpu_isa: str = Field(max_length=64)
    expected_ram_mib: float = Field(ge=0)
    expected_vram_mib: float = Field(ge=0)
    tuned: bool = False
    verified: Verified | None = None

    @field_validator("schema_version", mode="before")
    @classmethod
    def _is_number(cls, value: object) -> object:
        """A literal takes `true` for 1."""
        if isinstance(value, bool):
            raise ValueError("a number is needed")  # noqa: TRY004 - pydantic reports this one
        return value

    @property
    def verify_rows(self) -> int:
        """Rows of the widest verify pass."""
        return max(self.draft_nodes, self.lookup_nodes) + 1

    @property
    def has_drafts(self) -> bool:
        """Whether a step may check more than one row."""
        return self.verify_rows > 1

    def with_drafts(self, nodes: int, depth: int) -> Plan:
        """The same with the base's drafts alone: a tree of `nodes`, `depth` deep (0 and 0: no drafts at all)."""
        return self.model_copy(
            update={"draft_nodes": nodes, "draft_depth": depth, "lookup_nodes": 0, "lookup_least": 0.0}
        )

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Parse a plan file; values of another type than the schema's are refused, not converted.

        Raises:
            InvalidProfile: when the text is not a plan of this schema, or states what no machine has.
        """
        try:
            plan = cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            raise _invalid(error) from error
        stated = {"expected_ram_mib": plan.expected_ram_mib, "expected_vram_mib": plan.expected_vram_mib}
        if plan.verified is not None:
            stated |= {
                "verified.peak_mib": plan.verified.peak_mib,
                "verified.expected_mib": plan.verified.expected_mib,
            }
        for name, value in stated.items():
            if value > MAX_MIB:
                raise InvalidProfile(
                    f"the plan is not valid: {name}",
                    found=f"{value:g} MiB",
                    needed=f"at most {MAX_MIB:,.0f}",
                    hint=_HINT,
                )
        return plan

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Plan:
        """A plan inside of another document.

        Raises:
            InvalidProfile: when it is not a plan of this schema.
        """
        return cls.from_json(json.dumps(document))


_HINT = "/plan FILE in a session of twofold chat saves one"


def _invalid(error: ValidationError) -> InvalidProfile:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the file"
    return InvalidProfile(f"the plan is not valid: {where}: {problem_words(first)}", hint=_HINT)
