"""Options of sampling: their defaults are said, and those that do nothing are told."""

from __future__ import annotations

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.cli.model_options import SamplingOptions
from twofold.engine.sampling import SamplingParams


def _words(own: dict[str, object], **given: float) -> str | None:
    options = SamplingOptions(**given)  # type: ignore[arg-type]
    return options.idle_words(SamplingParams.from_generation_config(own, **given))


def test_what_does_nothing_at_temperature_0_is_told() -> None:
    assert _words({}, seed=3) == "--seed has no effect at temperature 0; --temp 0.8 samples"
    words = _words({}, seed=0, top_k=40, top_p=0.9, min_p=0.1)
    assert words is not None and words.startswith("--top-k and --top-p and --min-p and --seed have no effect")
    assert _words({"do_sample": True}, seed=3, temperature=0) is not None
    assert _words({}, seed=3, temperature=0.8, top_k=1) == "--seed has no effect at --top-k 1; --top-k 40 samples"


def test_what_counts_is_not_warned_of() -> None:
    assert _words({}) is None
    assert _words({}, repetition_penalty=1.1) is None
    assert _words({}, seed=3, temperature=0.8) is None
    assert _words({"do_sample": True, "temperature": 0.6}, seed=3, top_p=0.9) is None


@pytest.mark.parametrize("command", ["chat", "run"])
def test_help_says_the_defaults(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run_app(lambda: build_app()([command, "--help"])) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("the model's own; else 0", "default 0: all", "default 1: all", "default 0: none", "f16 (default)"):
        assert words in shown
    assert "default 8192" in shown
