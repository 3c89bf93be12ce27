"""Stages of a layer's wiring, the row store, and one layer through both streams."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from twofold.engine.graph.registry import graph_of
from twofold.engine.quantize.layer import Texts
from twofold.engine.quantize.rowstore import RowFile, RowStore
from twofold.engine.quantize.stages import record, run_steps
from twofold.engine.torch_ops import TorchOps, run_layer
from twofold.engine.weights import open_weights
from twofold.profiles.readers.local import read_folder_spec


def test_stages_end_at_the_groups_in_order(tiny_folder: Path) -> None:
    spec = read_folder_spec(tiny_folder, name="tiny")
    stages = record(lambda ops, x: graph_of(spec).decoder_layer(ops, spec, spec.layers[0], x))
    assert [stage.group for stage in stages] == [*spec.layers[0].groups, None]
    assert stages[0].needs == (0,)
    for before, after in itertools.pairwise(stages):
        assert before.keeps == after.needs
        assert before.group_input in before.keeps
    assert len(stages[-1].keeps) == 1


def test_running_the_stages_equals_running_the_graph(tiny_folder: Path) -> None:
    """Value by value, the recorded wiring is the eager one; between stages only what is kept survives."""
    spec = read_folder_spec(tiny_folder, name="tiny")
    lengths = (7, 1, 12)
    x = torch.randn(20, spec.hidden_size, generator=torch.Generator().manual_seed(0))
    with open_weights(tiny_folder) as source, torch.no_grad():
        expected = run_layer(spec, spec.layers[1], x, source.tensor, sequence_lengths=lengths)
        ops = TorchOps(spec, source.tensor, sequence_lengths=lengths)
        values = {0: x}
        for stage in record(lambda ops, x: graph_of(spec).decoder_layer(ops, spec, spec.layers[1], x)):
            run_steps(stage, ops, values)
            assert set(values) == set(stage.keeps)
    assert torch.equal(values[stage.group_input], expected)


@pytest.mark.parametrize("ram_bytes", [0, 10 * 3 * 4, 1 << 20])
def test_row_store_reads_what_was_written(tmp_path: Path, ram_bytes: int) -> None:
    store = RowStore(tmp_path, 10, ram_bytes)
    rows = {"a": torch.randn(10, 3), "b": torch.randn(10, 5)}
    for name, value in rows.items():
        store.write(name, 4, value[4:])
        store.write(name, 0, value[:4])
    for name, value in rows.items():
        assert torch.equal(store.read(name, 2, 9), value[2:9])
    assert len(list(tmp_path.iterdir())) == {0: 2, 120: 1, 1 << 20: 0}[ram_bytes]
    store.drop("a")
    store.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_short_row_file_is_noticed(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "x", 4, 2, create=True)
    file.write(0, torch.ones(4, 2))
    file.close()
    (tmp_path / "x").write_bytes(bytes(9))
    reopened = RowFile(tmp_path / "x", 4, 2)
    with pytest.raises(EOFError, match="shorter"):
        reopened.read(0, 4)
    reopened.drop()


@pytest.mark.parametrize("rows", [1, 5, 8, 1000])
def test_chunks_cover_every_row_with_whole_texts(rows: int) -> None:
    texts = Texts((3, 4, 1, 9, 2))
    chunks = list(texts.chunks(rows))
    assert [length for _, _, lengths in chunks for length in lengths] == list(texts.lengths)
    assert chunks[0][0] == 0
    assert chunks[-1][1] == texts.n_rows
    for (start, stop, lengths), following in zip(chunks, [*chunks[1:], None], strict=True):
        assert stop - start == sum(lengths)
        assert len(lengths) == 1 or sum(lengths) <= rows
        assert following is None or following[0] == stop
