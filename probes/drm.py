"""AMD cards from the kernel's DRM folders, for planning only: the engine computes on NVIDIA cards and CPUs."""

from __future__ import annotations

import re
from pathlib import Path

from twofold.probes.pcie import idle_link, parse_link_speed
from twofold.probes.texts import SYSTEM_ROOT, fields, names, read_int, read_text
from twofold.profiles.figures import Figure, reported, unknown
from twofold.profiles.hardware import Gpu
from twofold.profiles.text import one_line
from twofold.profiles.units import MIB

_AMD = "0x1002"
_NO_CUDA = "not an NVIDIA card"


def _bytes_figure(value: int | None, name: str) -> Figure:
    return unknown("MiB", f"no {name} in sysfs") if value is None else reported(value // MIB, "MiB", "sysfs amdgpu")


def _integer(value: int | None, unit: str, name: str) -> Figure:
    # An absent link has width 0 or 255.
    return reported(value, unit, "sysfs") if value and 0 < value <= 64 else unknown(unit, f"sysfs {name} does not say")


def _display(root: Path, card: str) -> Figure:
    states = [
        read_text(root, f"sys/class/drm/{name}/status")
        for name in names(root, "sys/class/drm")
        if name.startswith(f"{card}-")
    ]
    if not any(states):
        return unknown("", "no connectors in sysfs")
    return reported("connected" in states, "", "sysfs")


def _card(root: Path, card: str) -> Gpu | None:
    device = f"sys/class/drm/{card}/device"
    total = read_int(root, f"{device}/mem_info_vram_total")
    if read_text(root, f"{device}/vendor") != _AMD or total is None:
        return None
    used = read_int(root, f"{device}/mem_info_vram_used")
    identity = fields(read_text(root, f"{device}/uevent") or "", "=").get("PCI_ID", "unknown model")
    name = read_text(root, f"{device}/product_name") or f"AMD GPU {identity}"
    link = {key: read_text(root, f"{device}/{key}_link_speed") for key in ("max", "current")}
    return Gpu(
        name=one_line(name),
        vram_total_mib=_bytes_figure(total, "mem_info_vram_total"),
        vram_free_mib=_bytes_figure(None if used is None else max(0, total - used), "mem_info_vram_used"),
        compute_capability=unknown("", _NO_CUDA),
        driver=unknown("", "not read for AMD cards"),
        power_cap_w=unknown("W", "not read for AMD cards"),
        mig=unknown("", _NO_CUDA),
        display_attached=_display(root, card),
        unified_memory=unknown("", "sysfs does not tell integrated from discrete cards"),
        pcie=idle_link(
            _integer(parse_link_speed(link["max"]), "", "max_link_speed"),
            _integer(read_int(root, f"{device}/max_link_width"), "lanes", "max_link_width"),
            _integer(parse_link_speed(link["current"]), "", "current_link_speed"),
            _integer(read_int(root, f"{device}/current_link_width"), "lanes", "current_link_width"),
            "not measured: the engine does not use this card",
        ),
    )


def read_amd(root: Path = SYSTEM_ROOT) -> tuple[Gpu, ...]:
    """AMD cards with memory of their own."""
    cards = [name for name in names(root, "sys/class/drm") if re.fullmatch(r"card\d+", name)]
    found = (_card(root, card) for card in cards)
    return tuple(gpu for gpu in found if gpu is not None)
