"""The fill canary: a real process that fills a real context, and what is said when it cannot."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path

import psutil
import pytest

from twofold.cli import fill
from twofold.cli.fill import Filled, fill_apart
from twofold.cli.tune_view import verification_lines
from twofold.kernels.cpu import missing_reason
from twofold.planner.plan import Plan

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
GENEROUS = 4096.0


@pytest.fixture
def plan() -> Plan:
    return Plan(
        model="tiny", device="cpu", context_tokens=160, residual_bits=6, k_type="f16", v_type="f16",
        resident_linears=(), draft_nodes=4, draft_depth=2, prefill_chunk=32, threads=1, cpu_isa="auto",
        expected_ram_mib=100.0, expected_vram_mib=0.0,
    )  # fmt: skip


def test_the_context_is_filled_with_a_check_on_top(tiny_checkpoint: Path, plan: Plan) -> None:
    shares: list[float] = []
    found = fill_apart(tiny_checkpoint, plan, GENEROUS, lambda _, share: shares.append(share))
    assert found.is_filled and found.problem is None
    assert (found.reached_tokens, found.rows) == (160, 5)
    assert 20 < found.peak_mib < 1000
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1
    assert found.peak_figure().source == "measured"
    assert "160 tokens filled, a check of 5 rows" in verification_lines(found)[0]


@pytest.mark.parametrize(
    ("drafts", "rows"), [({"draft_nodes": 0}, 1), ({"lookup_nodes": 9}, 10), ({"lookup_nodes": 2}, 5)]
)
def test_the_check_on_top_is_as_wide_as_a_step_may_be(
    tiny_checkpoint: Path, plan: Plan, drafts: dict[str, int], rows: int
) -> None:
    found = fill_apart(tiny_checkpoint, plan.model_copy(update=drafts), GENEROUS)
    assert found.is_filled and found.rows == rows, found.problem


def test_a_peak_above_the_upper_estimate_is_no_verification(tiny_checkpoint: Path, plan: Plan) -> None:
    found = fill_apart(tiny_checkpoint, plan, 5.0)
    assert not found.is_filled and found.problem is not None
    assert "more than the plan's upper estimate of 5 MiB" in found.problem
    assert found.reached_tokens == 160


def test_a_process_that_is_ended_says_how_far_it_got(tiny_checkpoint: Path, plan: Plan) -> None:
    long = plan.model_copy(update={"context_tokens": 512, "prefill_chunk": 8})

    def kill_half_way(_: str, share: float) -> None:
        if share > 0.4:
            for process in psutil.Process().children():
                process.kill()

    found = fill_apart(tiny_checkpoint, long, GENEROUS, kill_half_way)
    assert not found.is_filled and found.problem is not None and "signal 9" in found.problem
    assert 200 < found.reached_tokens < 512
    shown = "\n".join(verification_lines(found))
    assert "needed: 512 tokens" in shown and f"found:  {found.reached_tokens} tokens" in shown
    assert f"--ctx {found.reached_tokens // 64 * 64}" in shown
    assert found.peak_figure().value is None


def test_what_cannot_even_start_is_tried_smaller(tiny_checkpoint: Path, plan: Plan) -> None:
    found = fill_apart(tiny_checkpoint, plan.model_copy(update={"context_tokens": 1024}), GENEROUS)
    assert not found.is_filled and found.problem is not None and "longer than the model's" in found.problem
    assert found.smaller_context == 512
    assert "a context of 512 tokens was filled" in "\n".join(verification_lines(found))


def test_memory_that_cannot_be_had_is_a_result(
    tiny_checkpoint: Path, tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "long"
    shutil.copytree(tiny_checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1 << 28}))
    huge = plan.model_copy(update={"context_tokens": 1 << 27})
    monkeypatch.setattr(fill, "LEAST_CONTEXT", 1 << 27)  # nothing smaller is tried: filling it would take hours
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, hard))
    try:
        found = fill_apart(folder, huge, GENEROUS)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert found.reached_tokens == 0 and found.problem is not None
    assert "MemoryError" in found.problem


def test_an_interruption_ends_the_process(tiny_checkpoint: Path, plan: Plan) -> None:
    def stop(_: str, share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    before = set(psutil.Process().children())
    with pytest.raises(KeyboardInterrupt):
        fill_apart(tiny_checkpoint, plan.model_copy(update={"prefill_chunk": 4}), GENEROUS, stop)
    assert set(psutil.Process().children()) <= before


def test_a_machine_short_of_memory_is_told(plan: Plan) -> None:
    found = fill._judged(plan, GENEROUS, {"filled": 160, "peak_mib": 90.0, "rereads": 5000}, 0, "")
    assert found.problem is not None and "5000 major page faults" in found.problem
    broken = fill._judged(plan, GENEROUS, {"filled": 32}, 3, "Traceback\nSomeError: it broke\n")
    assert broken.problem is not None and "SomeError" in broken.problem and "32 tokens" in broken.problem
    assert isinstance(broken, Filled)
