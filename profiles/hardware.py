"""`HardwareProfile`, schema versions 1 and 2: what a machine is and what was measured on it.

The schema is an allow-list: unknown keys are refused on import and nothing outside it can be exported. It has no place
for a path, host name, user, serial number, UUID, MAC, PCI bus id, IP address, prompt, or a time finer than a day.

Version 2 adds to observed runs the fields that `RUN_FIELDS_2` names, all optional, and kernels timed under other
activations than the usual ones. A profile without them is written as version 1, which older releases read; one with
them says that it is version 2, and an older release asks for an update.
"""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from twofold.profiles.activations import USUAL, Activations
from twofold.profiles.bounds import (
    Cores,
    Count,
    CountLimit,
    Day,
    Flag,
    GbPerSecond,
    Mib,
    MibLimit,
    Microseconds,
    Names,
    PcieGeneration,
    PcieWidth,
    Seconds,
    Text,
    Tiers,
    TokensPerCheck,
    TokensPerSecond,
    Watts,
    Words,
)
from twofold.profiles.figures import Figure

SCHEMA_VERSIONS: Final = (1, 2)
MAX_GPUS = 64
ROUNDING_MIB = 1.0
"""Two figures of one memory are each rounded to whole MiB."""


def _need_within(part: str, some: Figure, whole: str, everything: Figure) -> None:
    """Refuse more memory free than there is.

    Raises:
        ValueError: naming both fields.
    """
    if some.is_number and everything.is_number and some.number > everything.number + ROUNDING_MIB:
        raise ValueError(f"{part} ({some.number:,.0f} MiB) not above {whole} ({everything.number:,.0f} MiB)")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Tool(_Part):
    """The program that captured the profile."""

    name: Literal["twofold"] = "twofold"
    version: Text


class Pcie(_Part):
    """The link: generation and width at most, now, and under a copy load; host↔device GB/s both ways."""

    generation_max: PcieGeneration
    width_max: PcieWidth
    generation_now: PcieGeneration
    width_now: PcieWidth
    generation_load: PcieGeneration
    width_load: PcieWidth
    h2d_gb_s: GbPerSecond
    d2h_gb_s: GbPerSecond


class Gpu(_Part):
    """One card. `vram_total_mib` and `vram_free_mib` are the driver's; a MIG slice reports its own."""

    name: Text
    vram_total_mib: Mib
    vram_free_mib: Mib
    compute_capability: Words
    driver: Words
    power_cap_w: Watts
    mig: Words
    display_attached: Flag
    unified_memory: Flag
    pcie: Pcie

    @model_validator(mode="after")
    def _no_more_is_free_than_there_is(self) -> Self:
        _need_within("vram_free_mib", self.vram_free_mib, "vram_total_mib", self.vram_total_mib)
        return self


class Cache(_Part):
    """One cache level: bytes of one instance and how many instances there are."""

    level: int = Field(ge=1, le=4)
    kind: Literal["data", "instruction", "unified"]
    size_bytes: int = Field(gt=0, le=1 << 34)
    instances: int = Field(ge=1, le=4096)


class Cpu(_Part):
    """Processor facts. `isa_tiers` are twofold's kernel tiers the machine has (generic, avx2, avx512, avx512vbmi)."""

    model: Words
    architecture: Text
    logical_cores: Cores
    physical_cores: Cores
    performance_cores: Count
    efficiency_cores: Count
    usable_cpus: Cores
    quota_cpus: CountLimit
    numa_nodes: Count
    isa_flags: Names
    isa_tiers: Tiers
    caches: tuple[Cache, ...] = Field(default=(), max_length=16)


class Ram(_Part):
    """Memory that this process may use (cgroup-aware) and its measured read bandwidth."""

    total_mib: Mib
    available_mib: Mib
    limit_mib: MibLimit
    read_gb_s_one_thread: GbPerSecond
    read_gb_s_all_cores: GbPerSecond

    @model_validator(mode="after")
    def _no_more_is_available_than_there_is(self) -> Self:
        _need_within("available_mib", self.available_mib, "total_mib", self.total_mib)
        return self


class Os(_Part):
    """The platform in words that identify nobody."""

    family: Literal["linux", "windows", "macos", "other"]
    wsl: bool
    container: bool


class KernelTiming(_Part):
    """One timed kernel: what a pass of `rows` rows over a `shape` costs, its products rounding `activations` so."""

    op: Text
    shape: Text
    bits: int = Field(ge=1, le=16)
    rows: int = Field(ge=1, le=4096)
    isa: Text
    threads: int = Field(ge=1, le=4096)
    latency_us: Microseconds
    activations: Activations = USUAL


class ObservedRun(_Part):
    """What sessions really used and how fast they were.

    From version 2 on: `kv_type` is K's and `v_type` V's where they differ; `quant` the weights in words; `source` the
    command that observed (`chat`, `run`, `bench`); `activations` how products rounded them (None: the usual ones);
    `build`, `version` the native module's commit and the release; `driver`, `power_cap_w` of the card that took part;
    `memory_peak_mib` is a process's resident set, mapped weights included, and `memory_planned_mib` what the plan had
    counted for the same; `filled_tokens` the longest text.
    """

    model: Text
    residual_bits: int = Field(ge=0, le=16)
    context_tokens: int = Field(ge=0, le=1 << 31)
    kv_type: Text
    draft_nodes: int = Field(ge=0, le=4096)
    memory_peak_mib: Mib
    decode_tok_s: TokensPerSecond
    tokens_per_check: TokensPerCheck
    v_type: Text | None = None
    activations: Activations | None = None
    quant: Text | None = None
    source: Text | None = None
    device: Literal["cpu", "cuda"] | None = None
    threads: int | None = Field(default=None, ge=1, le=4096)
    isa: Text | None = None
    build: Text | None = None
    version: Text | None = None
    driver: Words | None = None
    power_cap_w: Watts | None = None
    draft_depth: int | None = Field(default=None, ge=0, le=4096)
    lookup_nodes: int | None = Field(default=None, ge=0, le=4096)
    prefill_chunk: int | None = Field(default=None, ge=1, le=65536)
    n_parameters: int | None = Field(default=None, ge=0, le=1 << 50)
    weights_mib: Mib | None = None
    memory_planned_mib: Mib | None = None
    process_mib: Mib | None = None
    filled_tokens: int | None = Field(default=None, ge=0, le=1 << 31)
    decode_tokens: int | None = Field(default=None, ge=0, le=1 << 31)
    prefill_tokens: int | None = Field(default=None, ge=0, le=1 << 31)
    prefill_tok_s: TokensPerSecond | None = None
    first_token_s: Seconds | None = None
    observed_on: Day | None = None


RUN_FIELDS_1: Final = (
    "model",
    "residual_bits",
    "context_tokens",
    "kv_type",
    "draft_nodes",
    "memory_peak_mib",
    "decode_tok_s",
    "tokens_per_check",
)
RUN_FIELDS_2: Final = tuple(name for name in ObservedRun.model_fields if name not in RUN_FIELDS_1)
"""Fields that came with version 2."""


def needs_version(observed: tuple[ObservedRun, ...], kernels: tuple[KernelTiming, ...]) -> Literal[1, 2]:
    """The lowest version of a profile that can hold these runs and timings."""
    is_newer = any(getattr(run, name) is not None for run in observed for name in RUN_FIELDS_2)
    return 2 if is_newer or any(one.activations != USUAL for one in kernels) else 1


class HardwareProfile(_Part):
    """A machine, as probed. `complete` is false when a part was skipped or failed (its figures say why)."""

    schema_version: Literal[1, 2] = 1
    tool: Tool
    captured_on: Day
    gpus: tuple[Gpu, ...] = Field(default=(), max_length=MAX_GPUS)
    gpu_note: Words
    cpu: Cpu
    ram: Ram
    os: Os
    kernels: tuple[KernelTiming, ...] = Field(default=(), max_length=4096)
    observed: tuple[ObservedRun, ...] = Field(default=(), max_length=1024)
    complete: bool

    @model_validator(mode="after")
    def _version_holds_its_fields(self) -> Self:
        if self.schema_version < needs_version(self.observed, self.kernels):
            raise ValueError("schema_version 2, which observed runs or kernels with these fields need")
        return self
