"""A full profile of a machine with two cards, timed kernels and an observed run."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A busy machine may take longer than the default 200 ms for one example; that is no failure.
settings.register_profile("profiles", deadline=None, max_examples=60)
settings.load_profile("profiles")

MACHINE = Path(__file__).parent / "data" / "machine.json"


@pytest.fixture(scope="session")
def _machine() -> Any:
    return json.loads(MACHINE.read_text("utf-8"))


@pytest.fixture
def document(_machine: Any) -> Any:
    """The profile as a JSON object that a test may change."""
    return copy.deepcopy(_machine)
