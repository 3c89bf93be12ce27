"""Recording and tapes: buffers are shared without ever being overwritten too early, at any width."""

from __future__ import annotations

import numpy as np
import pytest

from twofold.engine.recorder import Recording, record_body, record_head
from twofold.engine.tape import TapeMaker, WholeTapes, assign_buffers
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config


def spec_of(config: dict[str, object], **changes: object) -> ModelSpec:
    return spec_from_config({**config, **changes}, name="tiny", facts_source="test")


@pytest.fixture(params=["llama", "qwen2", "qwen3"])
def spec(request: pytest.FixtureRequest, tiny_config: dict[str, object]) -> ModelSpec:
    return spec_of(tiny_config, model_type=request.param)


def test_every_value_is_intact_when_it_is_read(spec: ModelSpec) -> None:
    """Replays ownership: each buffer remembers which storage was written to it last."""
    for recording in (record_body(spec), record_head(spec)):
        placed, _ = assign_buffers(recording)
        holds: dict[int, int] = {}
        if recording.source is not None:
            holds[placed[recording.source.storage]] = recording.source.storage
        for instruction in recording.instructions:
            for value in instruction.inputs:
                assert holds[placed[value.storage]] == value.storage
            if instruction.output is not None:
                buffer = placed[instruction.output.storage]
                assert buffer not in {placed[value.storage] for value in instruction.inputs}
                holds[buffer] = instruction.output.storage
        assert holds[placed[recording.result.storage]] == recording.result.storage


def test_memory_does_not_grow_with_depth(tiny_config: dict[str, object]) -> None:
    shallow = assign_buffers(record_body(spec_of(tiny_config)))[1]
    deep = assign_buffers(record_body(spec_of(tiny_config, num_hidden_layers=20)))[1]
    assert sum(deep) == sum(shallow)


def _count(recording: Recording, kind: str) -> int:
    return sum(instruction.kind == kind for instruction in recording.instructions)


def test_the_recording_is_the_graph(spec: ModelSpec) -> None:
    body, head = record_body(spec), record_head(spec)
    assert _count(body, "embed") == 1 and _count(head, "embed") == 0
    assert _count(body, "split_linear") == 4 * spec.n_layers and _count(head, "split_linear") == 1
    assert _count(body, "attention") == _count(body, "kv_write") == spec.n_layers
    assert _count(body, "rms_norm") == (4 if spec.qk_norm else 2) * spec.n_layers
    assert head.result.row_shape == (spec.vocab_size,) and body.result.row_shape == (spec.hidden_size,)


def test_tapes_resolve_exact_shapes_in_shared_buffers(spec: ModelSpec) -> None:
    maker = TapeMaker(record_body(spec), 7)
    bytes_before = maker.nbytes
    for width in (7, 1, 3):
        tape = maker.tape(width)
        assert tape.result.shape == (width, spec.hidden_size)
        for op in tape.ops:
            pairs = list(zip(op.inputs, op.instruction.inputs, strict=True))
            if op.output is not None and op.instruction.output is not None:
                pairs.append((op.output, op.instruction.output))
            for array, value in pairs:
                assert array.shape == (width, *value.row_shape) and array.dtype == np.float32
                whole = maker._buffers[maker._placed[value.storage]][: width * value.storage_size]
                assert np.shares_memory(array, whole) and array.base is not None
                whole[:] = np.arange(whole.size)
                expected = np.arange(whole.size).reshape(width, -1)[:, value.start : value.start + value.size]
                np.testing.assert_array_equal(array.reshape(width, -1), expected)
    assert np.shares_memory(maker.tape(1).result, maker.tape(7).result)
    assert maker.tape(3) is maker.tape(3) and maker.nbytes == bytes_before


def test_only_a_few_tapes_are_kept(spec: ModelSpec) -> None:
    maker = TapeMaker(record_head(spec), 64)
    first = maker.tape(1)
    tapes = [maker.tape(width) for width in range(2, 65)]
    assert maker.tape(50) is tapes[48] and maker.tape(1) is not first and maker.tape(20) is not tapes[18]


def test_a_whole_pass_is_both_tapes_over_their_buffers(spec: ModelSpec) -> None:
    body, head = TapeMaker(record_body(spec), 9), TapeMaker(record_head(spec), 7)
    whole = WholeTapes(body, head)
    first, second, both = body.tape(5), head.tape(5), whole.tape(5)
    assert both is whole.tape(5) and both.source is None and both.width == 5
    assert [op.instruction for op in both.ops] == [op.instruction for op in first.ops + second.ops]
    joint = both.ops[len(first.ops)].inputs[0]
    for one, other in ((joint, first.result), (both.result, second.result), (both.choice, second.choice)):
        assert one is not None and other is not None and np.shares_memory(one, other) and one.shape == other.shape
    with pytest.raises(ValueError, match="1 to 7 rows"):
        whole.tape(8)


@pytest.mark.parametrize("width", [0, -1, 8])
def test_widths_outside_the_buffers(spec: ModelSpec, width: int) -> None:
    with pytest.raises(ValueError, match="1 to 7 rows"):
        TapeMaker(record_body(spec), 7).tape(width)


def test_a_model_without_a_graph(tiny_config: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModel):
        record_body(spec_of(tiny_config, hidden_act="gelu"))
