"""Recorded machines as folders that the parsers read instead of `/`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.probes.nvml import RawGpu

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str], Path]:
    """`machine(name)` lays out the recorded tree and returns its root."""

    def lay_out(name: str) -> Path:
        root = tmp_path / name
        for path, text in json.loads((FIXTURES / f"{name}.json").read_text())["files"].items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return root

    return lay_out


@pytest.fixture
def raw_gpus() -> Callable[[str], tuple[RawGpu, ...]]:
    """`raw_gpus(name)` gives the recorded answers of the driver."""

    def load(name: str) -> tuple[RawGpu, ...]:
        document = json.loads((FIXTURES / "nvml" / f"{name}.json").read_text())
        return tuple(RawGpu.from_json(device) for device in document["devices"])

    return load
