"""`HardwareProfile`, schema version 1: what a machine is and what was measured on it.

The schema is an allow-list: unknown keys are refused on import and nothing outside it can be exported. It has no place
for a path, host name, user, serial number, UUID, MAC, PCI bus id, IP address, prompt, or a time finer than a day.
"""

from __future__ import annotations

import datetime
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from twofold.profiles.bounds import (
    Count,
    CountLimit,
    Flag,
    GbPerSecond,
    Mib,
    MibLimit,
    Microseconds,
    Names,
    PcieGeneration,
    PcieWidth,
    Text,
    TokensPerCheck,
    TokensPerSecond,
    Watts,
    Words,
)

SCHEMA_VERSION: Final = 1
MAX_GPUS = 64


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
    logical_cores: Count
    physical_cores: Count
    performance_cores: Count
    efficiency_cores: Count
    usable_cpus: Count
    quota_cpus: CountLimit
    numa_nodes: Count
    isa_flags: Names
    isa_tiers: Names
    caches: tuple[Cache, ...] = Field(default=(), max_length=16)


class Ram(_Part):
    """Memory that this process may use (cgroup-aware) and its measured read bandwidth."""

    total_mib: Mib
    available_mib: Mib
    limit_mib: MibLimit
    read_gb_s_one_thread: GbPerSecond
    read_gb_s_all_cores: GbPerSecond


class Os(_Part):
    """The platform in words that identify nobody."""

    family: Literal["linux", "windows", "macos", "other"]
    wsl: bool
    container: bool


class KernelTiming(_Part):
    """One timed kernel: what a pass of `rows` rows over a `shape` costs."""

    op: Text
    shape: Text
    bits: int = Field(ge=1, le=16)
    rows: int = Field(ge=1, le=4096)
    isa: Text
    threads: int = Field(ge=1, le=4096)
    latency_us: Microseconds


class ObservedRun(_Part):
    """What a session really used and how fast it was."""

    model: Text
    residual_bits: int = Field(ge=0, le=16)
    context_tokens: int = Field(ge=0, le=1 << 31)
    kv_type: Text
    draft_nodes: int = Field(ge=0, le=4096)
    memory_peak_mib: Mib
    decode_tok_s: TokensPerSecond
    tokens_per_check: TokensPerCheck


class HardwareProfile(_Part):
    """A machine, as probed. `complete` is false when a part was skipped or failed (its figures say why)."""

    schema_version: Literal[1] = SCHEMA_VERSION
    tool: Tool
    captured_on: datetime.date
    gpus: tuple[Gpu, ...] = Field(default=(), max_length=MAX_GPUS)
    gpu_note: Words
    cpu: Cpu
    ram: Ram
    os: Os
    kernels: tuple[KernelTiming, ...] = Field(default=(), max_length=4096)
    observed: tuple[ObservedRun, ...] = Field(default=(), max_length=1024)
    complete: bool
