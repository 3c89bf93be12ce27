"""Which of the known models is named to somebody who wants to talk: none that only continues text, none too slow."""

from __future__ import annotations

import pytest

from twofold.planner.machine import HostBudget, MachineBudget
from twofold.planner.rank import CHAT_FIRST_TOKEN_S, CHAT_TOK_S, RankedModel, rank_models, recommended
from twofold.planner.request import Request
from twofold.profiles.figures import Figure, reported, unknown
from twofold.profiles.readers.shipped import is_chat_model, shipped_specs


def _rows(gb_s: Figure, cores: int) -> tuple[RankedModel, ...]:
    host = HostBudget(reported(65536, "MiB", "test"), gb_s, "avx512vbmi", reported(cores, "cores", "test"))
    return rank_models(shipped_specs(), MachineBudget("a machine", "stated", (), host), Request())


def test_a_chat_model_that_answers_in_time_is_recommended() -> None:
    rows = _rows(reported(400.0, "GB/s", "test"), 64)
    found = recommended(rows)
    assert found is not None and is_chat_model(found.model) and found.runnable and found.verdict == "fits"
    assert found.compared.number >= CHAT_TOK_S
    first = found.evaluation.speed.ttft_1k_s
    assert not first.is_known or first.number <= CHAT_FIRST_TOKEN_S
    base = [row for row in rows if row.runnable and row.verdict == "fits" and not is_chat_model(row.model)]
    assert "meta-llama/Llama-3.1-8B" in {row.model for row in base}
    assert recommended(base) is None


@pytest.mark.parametrize("gb_s", [reported(8.0, "GB/s", "test"), unknown("GB/s", "never measured")])
def test_where_all_are_slow_or_no_speed_is_known_there_is_none(gb_s: Figure) -> None:
    rows = _rows(gb_s, 2)
    assert any(row.runnable and row.verdict == "fits" and is_chat_model(row.model) for row in rows)
    assert recommended(rows) is None


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("meta-llama/Llama-3.1-8B", False),
        ("meta-llama/Llama-3.1-8B-Instruct", True),
        ("HuggingFaceTB/SmolLM2-135M", False),
        ("google/gemma-3-270m", False),
        ("google/gemma-4-12B-it", True),
        ("Qwen/Qwen3-8B", True),
        ("Qwen/Qwen3-8B-Base", False),
        ("openai/gpt-oss-20b", True),
    ],
)
def test_base_models_are_told_by_their_names(name: str, is_one: bool) -> None:
    assert is_chat_model(name) is is_one
