"""Plan, dry run and engine count the same bytes, component by component."""

from __future__ import annotations

import contextlib
import mmap
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine import parts as engine_parts
from twofold.engine.allocations import GROWING, WEIGHTS, allocated, differences, dry_run, resident
from twofold.engine.checkpoint import Checkpoint, CheckpointConfig
from twofold.engine.engine import Engine
from twofold.engine.quantize.options import QuantizeOptions
from twofold.engine.residency import resident_bytes
from twofold.kernels.cpu import missing_reason
from twofold.planner.cpu_buffers import HEAD_ROWS, ROPE_BLOCK
from twofold.planner.knobs import Knobs
from twofold.planner.memory import cpu_memory
from twofold.planner.plan import Plan
from twofold.profiles.readers.config import spec_from_config
from twofold.profiles.readers.shipped import shipped_specs

LLAMA = {
    "model_type": "llama", "hidden_size": 72, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 117,
    "max_position_embeddings": 1 << 17, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
}  # fmt: skip
QWEN3 = LLAMA | {"model_type": "qwen3", "tie_word_embeddings": False, "vocab_size": 128}
QWEN2 = LLAMA | {"model_type": "qwen2", "intermediate_size": 72, "num_key_value_heads": 6}
GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 72, "intermediate_size": 160, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 117, "sliding_window": 32,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "max_position_embeddings": 1 << 17, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 24, "tie_word_embeddings": True,
    "rope_theta": 1e6, "rope_local_base_freq": 1e4, "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
SMOLLM2 = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152,
    "max_position_embeddings": 1 << 17, "rope_theta": 1e5, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
}  # fmt: skip
MODELS = {"llama": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3, "gemma3": GEMMA3}
pagemap = pytest.mark.skipif(resident_bytes([]) is None, reason="this system has no page map")
PLANNED = {
    "kv_cache": ("kv", "kv_sliding", "kv_pass"),
}


def _plan(**changes: Any) -> Plan:
    plan = Plan(
        model="tiny", device="cpu", context_tokens=300, residual_bits=6, k_type="f16", v_type="f16",
        resident_linears=(), draft_nodes=0, draft_depth=0, prefill_chunk=16, threads=2, cpu_isa="auto",
        expected_ram_mib=0, expected_vram_mib=0,
    )  # fmt: skip
    return plan.model_copy(update=changes)


def _planned(spec: Any, plan: Plan, component: str) -> int:
    knobs = Knobs(
        device="cpu", context_tokens=plan.context_tokens, residual_bits=plan.residual_bits, k_type=plan.k_type,
        v_type=plan.v_type, resident=(), draft_nodes=plan.draft_nodes, draft_depth=plan.draft_depth,
        prefill_chunk=plan.prefill_chunk, threads=plan.threads, cpu_isa=plan.cpu_isa, activations=plan.activations,
    )  # fmt: skip
    memory = cpu_memory(spec, knobs)
    terms = [memory.find(name) for name in PLANNED.get(component, (component,))]
    assert all(term.low == term.high for term in terms if term)
    return sum(term.bytes for term in terms if term)


def _assert_planned(spec: Any, plan: Plan) -> None:
    bits = plan.residual_bits
    made = CheckpointConfig(residual_bits=bits, overrides=QuantizeOptions(residual_bits=bits).overrides)
    counted = dry_run(spec, made, plan)
    for component, n_bytes in counted.items():
        assert _planned(spec, plan, component) == n_bytes, component


@pytest.mark.parametrize("model", [*sorted(MODELS), "smollm2"])
@pytest.mark.parametrize("context", [7, 300, 1024, 100_000])
@pytest.mark.parametrize("kinds", [("f16", "f16"), ("q8_0", "q4_0"), ("q4_0", "f16")])
@pytest.mark.parametrize("widths", [(16, 0), (64, 16), (4, 40), (512, 3)])
def test_the_plan_is_the_dry_run(model: str, context: int, kinds: tuple[str, str], widths: tuple[int, int]) -> None:
    spec = spec_from_config((MODELS | {"smollm2": SMOLLM2})[model], name=model, facts_source="test")
    chunk, nodes = widths
    for bits, activations in ((4, "int16"), (7, "int8"), (7, "int16/int8"), (4, "int8/int16")):
        changes = {"context_tokens": context, "k_type": kinds[0], "v_type": kinds[1], "prefill_chunk": chunk}
        changes |= {"residual_bits": bits, "activations": activations}
        _assert_planned(spec, _plan(**changes, draft_nodes=nodes, draft_depth=2))


def test_the_plan_is_the_dry_run_for_every_shipped_model_that_runs() -> None:
    runnable = [spec for spec in shipped_specs() if spec.runnable_reason is None]
    assert {spec.architecture for spec in runnable} >= {"llama", "qwen3", "gemma3"}
    for spec in runnable:
        _assert_planned(spec, _plan(context_tokens=min(32768, spec.context_length), draft_nodes=16, prefill_chunk=64))


def test_the_constants_are_the_engines() -> None:
    from twofold.engine import rope

    assert (HEAD_ROWS, ROPE_BLOCK) == (engine_parts.HEAD_ROWS, rope._BLOCK)


def test_a_dry_run_makes_nothing() -> None:
    spec = next(spec for spec in shipped_specs() if spec.name == "meta-llama/Llama-3.1-8B")
    plan, config = _plan(context_tokens=131072, prefill_chunk=512), CheckpointConfig(residual_bits=6)
    dry_run(spec, config, _plan())  # imports and caches
    tracemalloc.start()
    try:
        counted = dry_run(spec, config, plan)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counted["kv_cache"] > 16 << 30
    assert peak < 8 << 20


@pytest.fixture
def written(make_checkpoint: Callable[..., Path]) -> Callable[[str, int], Path]:
    """`written(model, bits)` → folder."""

    def write(model: str, bits: int) -> Path:
        return make_checkpoint(residual_bits=bits, **MODELS[model])

    return write


@pytest.mark.skipif(missing_reason() is not None, reason="counts the native scratch")
@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"k_type": "q8_0", "v_type": "q4_0", "draft_nodes": 5, "draft_depth": 2},
        {"prefill_chunk": 64, "context_tokens": 40, "draft_nodes": 33, "draft_depth": 3},
        {"residual_bits": 5, "prefill_chunk": 1, "activations": "int16/int8"},
        {"activations": "int8", "draft_nodes": 3, "draft_depth": 2},
    ],
)
def test_the_engine_is_its_dry_run(written: Callable[[str, int], Path], model: str, changes: dict[str, Any]) -> None:
    plan = _plan(**changes)
    engine = Engine.load(written(model, plan.residual_bits), plan, kernels="cpu")
    counted, fresh = dry_run(engine.spec, engine.config, plan), allocated(engine)
    assert {name: size for name, size in fresh.items() if name not in GROWING} == {
        name: size for name, size in counted.items() if name not in GROWING
    }
    assert fresh["product_scratch"] == 0 and differences(engine) == ()
    # narrow passes first, then the widest ones, without and with drafts: the scratch ends where the dry run said
    rows = max(min(plan.prefill_chunk, plan.context_tokens), plan.verify_rows)
    for width in sorted({1, min(2, rows), rows}):
        engine.parts.cache.make_room(width)
        for use_residual in (False, True):
            hidden = engine._pass([1] * width, range(-1, width - 1), use_residual)
            engine._logits(hidden[:1], use_residual)
    engine._logits(np.zeros((engine.parts.head.max_rows, engine.spec.hidden_size), np.float32))
    assert allocated(engine) == counted and differences(engine) == ()


def test_a_difference_is_found(written: Callable[[str, int], Path]) -> None:
    engine = Engine.load(written("llama", 6), _plan(), kernels="naive")
    engine.parts.body.buffers.append(engine.parts.body.buffers[0])
    (found,) = differences(engine)
    assert found.component == "activations" and found.allocated > found.expected


def test_weights_are_those_of_the_files(written: Callable[[str, int], Path]) -> None:
    checkpoint = Checkpoint.open(written("gemma3", 6))
    engine = Engine.load(checkpoint.path, _plan(), kernels="naive")
    weights = sum(allocated(engine)[name] for name in WEIGHTS)
    assert 0 < checkpoint.mapped_bytes - weights < 0.2 * checkpoint.mapped_bytes  # headers


@pagemap
def test_pages_are_counted_one_by_one() -> None:
    page, n_pages = mmap.PAGESIZE, 64
    fresh = mmap.mmap(-1, n_pages * page, flags=mmap.MAP_PRIVATE)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        fresh.madvise(mmap.MADV_NOHUGEPAGE)
    start = int(np.frombuffer(fresh, np.uint8).ctypes.data)
    for touched, at in enumerate((5, 6, 7, 40)):
        assert resident_bytes([(start, n_pages * page)]) == touched * page
        fresh[at * page] = 1
    assert resident_bytes([(start + 5 * page, 3 * page), (start + 8 * page, page)]) == 3 * page
    # no more than what was asked for, though a page holds it; and every page that a range lies in
    assert resident_bytes([(start + 40 * page + 100, 10), (start, 0)]) == 10
    assert resident_bytes([(start + 7 * page - 1, page + 2)]) == page + 2
    assert resident_bytes([]) == 0


@pagemap
def test_resident_memory_follows_use(make_checkpoint: Callable[..., Path]) -> None:
    """Every K and V is larger than what malloc keeps to give out again (glibc: at most 32 MiB), so its pages are new:
    none is there before it is written, whatever this process did before.
    """
    context, filled = 1 << 20, 1 << 18
    folder = make_checkpoint(residual_bits=6, **(LLAMA | {"max_position_embeddings": context}))
    engine = Engine.load(folder, _plan(context_tokens=context), kernels="naive")
    sides = [array for layer in engine.parts.cache.layers for array in (layer.k, layer.v)]
    assert min(array.nbytes for array in sides) > 32 << 20
    loaded = resident(engine)
    engine.prefill(list(range(17)))
    engine.step()
    used = resident(engine)
    engine.repeat_cached(filled)
    full = resident(engine)
    assert loaded is not None and used is not None and full is not None
    assert loaded.weights < used.weights <= engine.checkpoint.mapped_bytes
    written = sum(array[:filled].nbytes for array in sides)
    huge = len(sides) * (2 << 20)  # the system may have made the pages around the first and the last row at once
    assert abs(full.arrays - used.arrays - written) <= huge < written / 4
    assert full.arrays < engine.parts.cache.nbytes
