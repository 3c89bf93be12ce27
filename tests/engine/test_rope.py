"""Rotary tables: a position's row never depends on what else was asked for."""

from __future__ import annotations

import numpy as np

from twofold.engine.rope import RopeTable, tables
from twofold.profiles.model_spec import RopeSpec

SPEC = RopeSpec(100000.0, 18)


def read(table: RopeTable, positions: list[int]) -> np.ndarray:
    found = np.full((2, len(positions), 9), np.nan, np.float32)
    table.read(np.array(positions, np.int64), found[0], found[1])
    return found


def test_rows_are_the_same_in_any_order_and_company() -> None:
    first, second = RopeTable(SPEC, 1000), RopeTable(SPEC, 700)
    scattered = read(first, [699, 3, 255, 256, 3, 511])
    for row, position in enumerate([699, 3, 255, 256, 3, 511]):
        assert np.array_equal(read(second, [position])[:, 0], scattered[:, row])


def test_rows_are_the_tables() -> None:
    cos, sin = tables(SPEC, np.arange(300))
    found = read(RopeTable(SPEC, 300), list(range(300)))
    assert np.allclose(found[0], cos, atol=1e-7) and np.allclose(found[1], sin, atol=1e-7)
    assert np.array_equal(found[0, 0], np.ones(9, np.float32))


def test_nothing_is_computed_before_it_is_needed() -> None:
    table = RopeTable(SPEC, 100_000)
    assert int(table.filled[0]) == 0
    read(table, [5])
    assert int(table.filled[0]) == 256 and table.nbytes == 2 * 391 * 256 * 9 * 4
