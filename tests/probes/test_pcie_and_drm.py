"""Link generations by table, and AMD cards from sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from twofold.probes.drm import read_amd
from twofold.probes.pcie import generation_of, parse_link_speed


@pytest.mark.parametrize(
    ("gt_s", "generation"),
    [(2.5, 1), (5.0, 2), (8.0, 3), (16.0, 4), (32.0, 5), (64.0, 6), (0.0, None), (6.0, None)],
)
def test_generation_of_a_rate(gt_s: float, generation: int | None) -> None:
    assert generation_of(gt_s) == generation


@pytest.mark.parametrize(
    ("text", "generation"),
    [("16.0 GT/s PCIe", 4), ("2.5 GT/s PCIe", 1), ("8 GT/s", 3), ("Unknown", None), ("", None), (None, None)],
)
def test_sysfs_speeds(text: str | None, generation: int | None) -> None:
    assert parse_link_speed(text) == generation


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_amd_card(tmp_path: Path) -> None:
    drm = tmp_path / "sys/class/drm"
    write(
        drm / "card1/device",
        {
            "vendor": "0x1002\n",
            "uevent": "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:744C\n",
            "mem_info_vram_total": "25753026560\n",
            "mem_info_vram_used": "1073741824\n",
            "max_link_speed": "16.0 GT/s PCIe\n",
            "current_link_speed": "2.5 GT/s PCIe\n",
            "max_link_width": "16\n",
            "current_link_width": "16\n",
        },
    )
    write(drm / "card1-DP-1", {"status": "disconnected\n"})
    write(drm / "card1-HDMI-A-1", {"status": "connected\n"})
    write(drm / "card0/device", {"vendor": "0x8086\n"})
    (gpu,) = read_amd(tmp_path)
    assert gpu.name == "AMD GPU 1002:744C"
    assert gpu.vram_total_mib.value == 24560
    assert gpu.vram_free_mib.value == 24560 - 1024
    assert (gpu.pcie.generation_max.value, gpu.pcie.generation_now.value) == (4, 1)
    assert gpu.display_attached.value is True
    assert gpu.compute_capability.value is None


def test_missing_counters_are_unknown(tmp_path: Path) -> None:
    write(tmp_path / "sys/class/drm/card0/device", {"vendor": "0x1002", "mem_info_vram_total": "536870912"})
    (gpu,) = read_amd(tmp_path)
    assert gpu.vram_free_mib.value is None
    assert gpu.pcie.width_max.value is None


def test_no_cards(tmp_path: Path) -> None:
    assert read_amd(tmp_path) == ()
