"""Models and machines to plan with: shipped facts, odd shapes, profiled machines without and with cards."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from twofold.planner.machine import MachineBudget, from_card, from_profile, with_host
from twofold.profiles.cards import find_card
from twofold.profiles.figures import Figure, measured, reported, unknown
from twofold.profiles.hardware import Cpu, Gpu, HardwareProfile, Os, Pcie, Ram, Tool
from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec, RopeSpec
from twofold.profiles.readers.shipped import shipped_spec


def _groups(layer: str, hidden: int, inner: int, q_rows: int, kv_rows: int, bias: bool) -> tuple[LinearGroup, ...]:
    qkv = tuple(
        LinearSpec(f"{layer}.{name}_proj", hidden, rows, bias)
        for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows))
    )
    return (
        LinearGroup(f"{layer}.qkv", qkv),
        LinearGroup(f"{layer}.o", (LinearSpec(f"{layer}.o_proj", q_rows, hidden),)),
        LinearGroup(f"{layer}.gate_up", tuple(LinearSpec(f"{layer}.{n}_proj", hidden, inner) for n in ("gate", "up"))),
        LinearGroup(f"{layer}.down", (LinearSpec(f"{layer}.down_proj", inner, hidden),)),
    )


@pytest.fixture
def odd_model() -> ModelSpec:
    """Sizes that are no multiple of anything: 3 layers of each cache kind, biases, a head dim of 40."""
    kinds: tuple[dict[str, Any], ...] = (
        {"kind": "growing"},
        {"kind": "sliding", "window": 100},
        {"kind": "shared", "shares_layer": 0},
        {"kind": "latent", "latent_dim": 72},
        {"kind": "recurrent", "state_bytes": 12345, "n_heads": 0},
    )
    layers = tuple(
        LayerSpec(
            index=i,
            groups=_groups(f"model.layers.{i}", 200, 330, 160, 80, bias=True),
            k_head_dim=40,
            v_head_dim=40,
            n_kv_heads=2,
            rope=RopeSpec(10000.0, 40),
            **{"n_heads": 4, **kind},
        )
        for i, kind in enumerate(kinds)
    )
    return ModelSpec(
        name="test/odd",
        architecture="llama",
        layers=layers,
        head=LinearGroup("lm_head", (LinearSpec("lm_head", 200, 1001),)),
        hidden_size=200,
        vocab_size=1001,
        context_length=4096,
        tie_embeddings=False,
        rms_eps=1e-5,
        activation="silu",
        facts_source="written by hand",
    )


@pytest.fixture
def shipped() -> Callable[[str], ModelSpec]:
    def get(repo: str) -> ModelSpec:
        spec = shipped_spec(repo)
        assert spec is not None
        return spec

    return get


@pytest.fixture
def card_alone() -> Callable[[str], MachineBudget]:
    return lambda name: from_card(find_card(name))


@pytest.fixture
def card_and_host() -> Callable[..., MachineBudget]:
    def get(name: str, ram_gib: float = 64, gb_s: float = 36, isa: str = "avx512vbmi") -> MachineBudget:
        return with_host(from_card(find_card(name)), ram_mib=ram_gib * 1024, ram_gb_s=gb_s, isa=isa)

    return get


def _gpu(name: str, free: Figure, unified: bool) -> Gpu:
    nothing = unknown("", "not probed")
    link = Pcie(
        generation_max=unknown("", "not probed"),
        width_max=unknown("", "not probed"),
        generation_now=unknown("", "not probed"),
        width_now=unknown("", "not probed"),
        generation_load=unknown("", "not probed"),
        width_load=unknown("", "not probed"),
        h2d_gb_s=unknown("GB/s", "not probed"),
        d2h_gb_s=unknown("GB/s", "not probed"),
    )
    return Gpu(
        name=name,
        vram_total_mib=reported(24564, "MiB", "driver"),
        vram_free_mib=free,
        compute_capability=nothing,
        driver=nothing,
        power_cap_w=unknown("W", "not probed"),
        mig=nothing,
        display_attached=nothing,
        unified_memory=reported(unified, "", "driver"),
        pcie=link,
    )


@pytest.fixture
def profile() -> Callable[..., HardwareProfile]:
    """A machine of 8 cores and 64 GiB with the given cards: (name, free MiB or None, unified)."""

    def get(
        cards: tuple[tuple[str, float | None, bool], ...] = (),
        *,
        available_mib: float | None = 60000.0,
        gb_s: float | None = 40.0,
        quota: float | None = None,
    ) -> HardwareProfile:
        gpus = tuple(
            _gpu(name, unknown("MiB", "not told") if free is None else reported(free, "MiB", "driver"), u)
            for name, free, u in cards
        )
        ram = unknown("MiB", "no /proc") if available_mib is None else reported(available_mib, "MiB", "meminfo")
        speed = unknown("GB/s", "skipped") if gb_s is None else measured(gb_s, "GB/s", "triad", n=5, spread=2.0)
        cores = reported(8, "cores", "sysfs")
        return HardwareProfile(
            tool=Tool(version="test"),
            captured_on=datetime.date(2026, 1, 1),
            gpus=gpus,
            gpu_note=unknown("", "test"),
            cpu=Cpu(
                model=reported("Test CPU", "", "cpuinfo"),
                architecture="x86_64",
                logical_cores=reported(16, "cores", "sysfs"),
                physical_cores=cores,
                performance_cores=cores,
                efficiency_cores=reported(0, "cores", "sysfs"),
                usable_cpus=reported(16, "cpus", "affinity"),
                quota_cpus=unknown("cpus", "no quota") if quota is None else reported(quota, "cpus", "cpu.max"),
                numa_nodes=reported(1, "nodes", "sysfs"),
                isa_flags=reported(["avx2", "avx512f"], "", "CPUID"),
                isa_tiers=reported(["generic", "avx2", "avx512"], "", "CPUID"),
            ),
            ram=Ram(
                total_mib=reported(65536, "MiB", "meminfo"),
                available_mib=ram,
                limit_mib=unknown("MiB", "no limit"),
                read_gb_s_one_thread=speed,
                read_gb_s_all_cores=speed,
            ),
            os=Os(family="linux", wsl=False, container=False),
            complete=True,
        )

    return get


@pytest.fixture
def machine(profile: Callable[..., HardwareProfile]) -> Callable[..., MachineBudget]:
    """This machine, without a card unless one is given."""
    return lambda *args, **kwargs: from_profile(profile(*args, **kwargs), label="this machine", is_this_machine=True)


@pytest.fixture
def other_machine(profile: Callable[..., HardwareProfile]) -> Callable[..., MachineBudget]:
    return lambda *args, **kwargs: from_profile(profile(*args, **kwargs), label="profile x", is_this_machine=False)
