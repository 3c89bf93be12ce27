"""Terms per device: conserved, monotone, labelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner import codecs
from twofold.planner.knobs import Knobs
from twofold.planner.memory import checkpoint_bytes, cpu_memory, host_memory, vram_memory
from twofold.profiles.model_spec import ModelSpec

KNOBS = Knobs(
    device="cpu",
    context_tokens=2048,
    residual_bits=6,
    k_type="f16",
    v_type="f16",
    resident=(),
    draft_nodes=0,
    draft_depth=0,
    prefill_chunk=64,
    threads=4,
    cpu_isa="avx2",
)


def _term(memory: object, name: str) -> int:
    found = memory.find(name)  # type: ignore[attr-defined]
    return found.bytes if found else 0


def test_exact_terms_have_no_range_and_the_rest_has_one(odd_model: ModelSpec) -> None:
    memory = cpu_memory(odd_model, KNOBS)
    ranged = {term.name for term in memory.terms if term.low != term.high}
    assert ranged == {"thread_scratch", "process"}
    assert all(term.low <= term.bytes <= term.high for term in memory.terms)
    assert memory.low < memory.total < memory.high
    assert all(term.figure.source == "reasoned" and term.by for term in memory.terms)


def test_split_conserves_the_residual(odd_model: ModelSpec) -> None:
    """Whatever is resident, VRAM and RAM together hold every residual once, and base and embedding once."""
    whole = cpu_memory(odd_model, KNOBS)
    names = tuple(group.name for group in odd_model.groups)
    for resident in ((), names[:3], names[::2], names):
        knobs = KNOBS.with_(device="cuda", resident=resident)
        vram, ram = vram_memory(odd_model, knobs), host_memory(odd_model, knobs)
        assert _term(vram, "residual_resident") + _term(ram, "residual_host") == _term(whole, "residual")
        for name in ("base", "head_base", "rotation", "norms", "kv", "kv_sliding", "recurrent_state"):
            assert _term(vram, name) == _term(whole, name), name
        assert _term(ram, "embedding") == _term(whole, "embedding") == 1001 * 200 * 2


def test_no_stream_buffer_where_nothing_is_streamed(odd_model: ModelSpec) -> None:
    names = tuple(group.name for group in odd_model.groups)
    assert vram_memory(odd_model, KNOBS.with_(device="cuda", resident=names)).find("prefill_stream") is None
    assert vram_memory(odd_model, KNOBS.with_(device="cuda")).find("prefill_stream") is not None


def test_a_draft_tree_costs_logits_cache_slots_and_one_state(odd_model: ModelSpec) -> None:
    on_card = KNOBS.with_(device="cuda")
    plain, tree = vram_memory(odd_model, on_card), vram_memory(odd_model, on_card.with_(draft_nodes=16, draft_depth=4))
    assert _term(tree, "logits") - _term(plain, "logits") == 16 * 1001 * 4
    assert _term(tree, "recurrent_state") == 2 * _term(plain, "recurrent_state") == 2 * 12345
    assert _term(tree, "kv_pass") - _term(plain, "kv_pass") == 16 * (2 * 2 * 40 * 2 + 72 * 2)


@pytest.mark.parametrize("change", [{"context_tokens": 4096}, {"residual_bits": 8}, {"prefill_chunk": 512}])
def test_more_of_anything_needs_more(odd_model: ModelSpec, change: dict[str, int]) -> None:
    assert cpu_memory(odd_model, KNOBS.with_(**change)).high > cpu_memory(odd_model, KNOBS).high


def test_checkpoint_holds_weights_but_no_cache(shipped: Callable[[str], ModelSpec]) -> None:
    spec = shipped("HuggingFaceTB/SmolLM2-135M")
    weights = sum(codecs.base_bytes(g) + codecs.residual_bytes(g, 6) for g in spec.groups) + 49152 * 576 * 2
    size = checkpoint_bytes(spec, 6)
    assert weights < size < weights * 1.005


def test_json_names_every_term_with_its_unit(odd_model: ModelSpec) -> None:
    document = cpu_memory(odd_model, KNOBS).to_json()
    assert all(name.endswith("_mib") for name in document)
    assert document["total_mib"]["unit"] == "MiB"  # type: ignore[index]


def test_a_card_has_every_term_of_a_split_run(shipped: Callable[[str], ModelSpec]) -> None:
    """Head, logits, staging ring, activations, cache by kind, state by copies, runtime: on the card or beside it."""
    knobs = KNOBS.with_(device="cuda", draft_nodes=8, draft_depth=4)
    names = {term.name for term in vram_memory(shipped("google/gemma-4-31B-it"), knobs).terms}
    assert names >= {
        "base", "head_base", "rotation", "norms", "residual_resident", "kv", "kv_sliding", "kv_pass", "logits",
        "activations", "rope_tables", "exchange", "prefill_stream", "runtime",
    }  # fmt: skip
    hybrid = vram_memory(shipped("Qwen/Qwen3.8-27B"), knobs).find("recurrent_state")
    assert hybrid is not None and hybrid.bytes == 2 * 156_893_184
    host = {term.name for term in host_memory(shipped("Qwen/Qwen3.8-27B"), knobs).terms}
    assert host >= {"residual_host", "embedding", "exchange", "process"}
    everything = knobs.with_(resident=tuple(group.name for group in shipped("Qwen/Qwen3-8B").groups))
    whole = vram_memory(shipped("Qwen/Qwen3-8B"), everything)
    assert whole.find("exchange") is None and whole.find("prefill_stream") is None


def test_a_hand_off_has_as_many_planes_as_the_residual_reads(shipped: Callable[[str], ModelSpec]) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    knobs = KNOBS.with_(device="cuda", draft_nodes=8, draft_depth=4)
    widest = max(spec.groups, key=lambda group: 2 * group.in_features + 4 * group.out_features)
    for activations, planes in (("int16", 2), ("int8", 1), ("int8/int16", 2), ("int16/int8", 1)):
        one = knobs.with_(activations=activations)
        for memory in (vram_memory(spec, one), host_memory(spec, one)):
            term = memory.find("exchange")
            assert term is not None
            assert term.bytes == 2 * 9 * (planes * widest.in_features + 4 * widest.out_features)
