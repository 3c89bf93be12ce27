"""Tiers from CPUID and XCR0, and from the kernel's flags."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from twofold.kernels.cpu import missing_reason, native
from twofold.probes.isa import from_cpuinfo, from_native, read_isa, tiers_of

needs_native = pytest.mark.skipif(missing_reason() is not None, reason="no native module")
AVX2 = {"avx", "avx2", "fma", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}


@pytest.mark.parametrize(
    ("flags", "tiers"),
    [
        (set(), ["generic"]),
        (AVX2, ["generic", "avx2"]),
        (AVX2 - {"f16c"}, ["generic"]),
        (AVX512, ["generic", "avx2", "avx512"]),
        (AVX512 - {"avx512_vnni"} | {"avx512vbmi"}, ["generic", "avx2"]),
        (AVX512 | {"avx512vbmi"}, ["generic", "avx2", "avx512", "avx512vbmi"]),
        (AVX512 - {"fma"}, ["generic"]),
    ],
)
def test_tiers_build_on_each_other(flags: set[str], tiers: list[str]) -> None:
    assert tiers_of(flags) == tiers


def features(**changes: Any) -> dict[str, Any]:
    answer = {
        "flags": dict.fromkeys([*sorted(AVX512), "amx_int8"], True),
        "ymm_state": True,
        "zmm_state": True,
        "tile_state": True,
        "tiers": ["generic", "avx2", "avx512"],
    }
    return answer | changes


def test_registers_that_the_system_does_not_save_take_their_flags_away() -> None:
    flags, tiers = from_native(features(zmm_state=False, tile_state=False, tiers=["generic", "avx2"]))
    assert set(flags.value) == AVX2  # type: ignore[arg-type]
    assert tiers.value == ["generic", "avx2"]
    none, _ = from_native(features(ymm_state=False, zmm_state=False, tiers=["generic"]))
    assert none.value == []


def test_no_flags_line_is_unknown() -> None:
    flags, tiers = from_cpuinfo("processor\t: 0")
    assert flags.value is None
    assert tiers.value is None


def test_neither_source_is_unknown(tmp_path: Path) -> None:
    assert read_isa(tmp_path, None)[0].source == "unknown"


@needs_native
def test_native_and_kernel_agree_on_this_machine() -> None:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if "flags" not in text:
        pytest.skip("no x86 flags")
    answer = native().cpu_features()
    flags, tiers = from_native(answer)
    kernel_flags, kernel_tiers = from_cpuinfo(text)
    assert tiers.value == kernel_tiers.value
    common = set(answer["flags"])
    assert set(flags.value) == set(kernel_flags.value) & common  # type: ignore[arg-type]


def _active(tier: str) -> subprocess.CompletedProcess[str]:
    script = "from twofold.kernels.cpu import native; print(native().active_tier())"
    environment = os.environ | {"TWOFOLD_CPU_ISA": tier}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)


@needs_native
def test_a_lower_tier_can_be_asked_for() -> None:
    assert _active("generic").stdout.strip() == "generic"


@needs_native
@pytest.mark.parametrize("tier", ["avx1024", "AVX2 "])
def test_an_unknown_tier_is_refused_with_the_choices(tier: str) -> None:
    result = _active(tier)
    assert result.returncode != 0
    assert "not one of generic, avx2, avx512, avx512vbmi" in result.stderr


@needs_native
def test_a_tier_that_the_machine_lacks_is_refused() -> None:
    tiers = native().cpu_features()["tiers"]
    if "avx512vbmi" in tiers:
        pytest.skip("this machine has every tier")
    result = _active("avx512vbmi")
    assert result.returncode != 0
    assert f"at most {tiers[-1]}" in result.stderr
