"""Shards written in slices: the bytes of the whole, all or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from twofold.engine.checkpoint.layout import TensorLayout
from twofold.engine.checkpoint.shards import ShardSet, layouts_of


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "a.codes": rng.integers(0, 256, (7, 3, 5), np.uint8),
        "z.scales": rng.standard_normal((7, 3)).astype(np.float16),
        "b.scales": rng.standard_normal((4, 1)).astype(np.float16),
        "norm": rng.standard_normal(9).astype(np.float32),
        "signs": rng.integers(-1, 2, 11, np.int8),
        "none": np.empty((0, 4), np.float32),
    }


def test_slices_in_any_order_give_the_bytes_of_the_whole(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    with ShardSet(tmp_path, layouts_of("x.safetensors", tensors)) as shards:
        pieces = [(name, row) for name, array in tensors.items() for row in range(0, array.shape[0], 2)]
        for index in rng.permutation(len(pieces)):
            name, row = pieces[index]
            shards.write(name, tensors[name][row : row + 2], row)
        assert not (tmp_path / "x.safetensors").exists()
    assert (tmp_path / "x.safetensors").read_bytes() == save(tensors, metadata={"format": "twofold"})
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_what_is_not_complete_is_not_published(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="norm: 3 of 9 rows"), ShardSet(tmp_path, layouts_of("x", tensors)) as shards:
        for name, array in tensors.items():
            shards.write(name, array[:3] if name == "norm" else array)
    with pytest.raises(KeyboardInterrupt), ShardSet(tmp_path, layouts_of("x", tensors)) as shards:
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    for array, first in (
        (np.zeros(9, np.float16), 0),
        (np.zeros((9, 1), np.float32), 0),
        (np.zeros(3, np.float32), 7),
    ):
        with pytest.raises(ValueError, match="norm"), ShardSet(tmp_path, layouts_of("x", tensors)) as shards:
            shards.write("norm", array, first)
    with pytest.raises(ValueError, match="int64"):
        layouts_of("x", {"ids": np.zeros(3, np.int64)})


def test_files_are_published_in_order_of_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer counts as written when its residual is there: that must come last."""
    import os

    published: list[str] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (published.append(Path(b).name), replace(a, b)))
    layouts = {part: TensorLayout("U8", (1,), f"{part}.safetensors") for part in ("residual", "base")}
    with ShardSet(tmp_path, layouts) as shards:
        for part in layouts:
            shards.write(part, np.zeros(1, np.uint8))
    assert published == ["base.safetensors", "residual.safetensors"]
