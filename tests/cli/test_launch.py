"""Opening a model for real: what is asked for and what a checkpoint has."""

from __future__ import annotations

from pathlib import Path

import pytest

from twofold.cli.launch import launch
from twofold.cli.launch_options import LaunchOptions
from twofold.kernels.cpu import missing_reason
from twofold.profiles.errors import InvalidOption

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")


def test_a_checkpoint_is_opened_under_a_plan_of_its_own_width(tiny_checkpoint: Path) -> None:
    launched = launch(LaunchOptions(model=str(tiny_checkpoint), threads=1))
    assert launched is not None and launched.checkpoint_path == tiny_checkpoint
    assert launched.plan.residual_bits == launched.engine.config.residual_bits == 6
    assert launched.plan.threads == 1
    assert launch(LaunchOptions(model=str(tiny_checkpoint), residual_bits=6)) is not None


def test_another_width_is_refused_and_not_ignored(tiny_checkpoint: Path) -> None:
    with pytest.raises(InvalidOption, match="another residual width") as refused:
        launch(LaunchOptions(model=str(tiny_checkpoint), residual_bits=7))
    assert "6 bits" in str(refused.value.needed) and "7" in str(refused.value.found)
