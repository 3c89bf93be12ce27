"""A full profile of a machine with two cards, timed kernels and an observed run."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

MACHINE = Path(__file__).parent / "data" / "machine.json"


@pytest.fixture(scope="session")
def _machine() -> Any:
    return json.loads(MACHINE.read_text("utf-8"))


@pytest.fixture
def document(_machine: Any) -> Any:
    """The profile as a JSON object that a test may change."""
    return copy.deepcopy(_machine)
