"""The profile's own rules, whoever builds one: bounds, units, texts, and that it is closed and frozen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from twofold.profiles.figures import Figure, measured, reported, unknown
from twofold.profiles.hardware import MAX_GPUS, HardwareProfile, Pcie, Ram


def _ram(**changes: Figure) -> Ram:
    figures = {
        "total_mib": reported(64000, "MiB", "procfs meminfo"),
        "available_mib": reported(60000, "MiB", "procfs meminfo"),
        "limit_mib": unknown("MiB", "no limit"),
        "read_gb_s_one_thread": measured(11.0, "GB/s", "read", n=5, spread=0.1),
        "read_gb_s_all_cores": unknown("GB/s", "not measured"),
    }
    return Ram(**(figures | changes))


def test_built_in_code_the_same_bounds_hold() -> None:
    assert _ram().total_mib.value == 64000
    for bad in (
        reported(-1, "MiB", "x"),
        reported(64, "GiB", "x"),
        reported("64000", "MiB", "x"),
        reported(float("inf"), "MiB", "x"),
        reported(float("nan"), "MiB", "x"),
        reported(1 << 27, "MiB", "x"),
        reported(1, "MiB", "two\nlines"),
        reported(1, "MiB", "x" * 300),
    ):
        with pytest.raises(ValidationError):
            _ram(total_mib=bad)


def test_an_unknown_figure_needs_only_its_reason() -> None:
    assert _ram(total_mib=unknown("MiB", "no such file")).total_mib.value is None
    with pytest.raises(ValidationError):
        _ram(total_mib=unknown("MiB", ""))


def test_a_range_holds_for_the_bounds_too() -> None:
    with pytest.raises(ValidationError):
        _ram(total_mib=Figure(5, "MiB", "reasoned", "f", low=9, high=1))
    with pytest.raises(ValidationError):
        _ram(total_mib=Figure(5, "MiB", "reasoned", "f", low=-1, high=9))


def test_pcie_generations_and_widths() -> None:
    link = {name: unknown("", "no link") for name in Pcie.model_fields}
    link["h2d_gb_s"] = link["d2h_gb_s"] = unknown("GB/s", "no link")
    assert Pcie(**(link | {"width_max": reported(16, "lanes", "NVML")})).width_max.value == 16
    with pytest.raises(ValidationError):
        Pcie(**(link | {"generation_max": reported(32, "generation", "NVML")}))


def test_it_is_closed_frozen_and_bounded(document: Any) -> None:
    profile = HardwareProfile.model_validate_json(json.dumps(document))
    with pytest.raises(ValidationError):
        profile.complete = False  # type: ignore[misc]
    document["gpus"] = document["gpus"][:1] * (MAX_GPUS + 1)
    with pytest.raises(ValidationError):
        HardwareProfile.model_validate_json(json.dumps(document))
