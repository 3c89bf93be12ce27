"""From a recording to tapes: buffers assigned by liveness, then every instruction's arrays resolved for one width.

Buffers are allocated once for the widest pass and shared by tapes of every width, so a tape costs only
its list of views.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.engine.arrays import IN_MEMORY, Arrays
from twofold.engine.recorder import Instruction, Recording, Value

F32 = NDArray[np.float32]
_KEPT_TAPES = 40


@dataclass(frozen=True, slots=True)
class Op:
    """An instruction with its arrays, each fp32 [width, *row_shape]; rows may lie apart (see `Value`)."""

    instruction: Instruction
    inputs: tuple[F32, ...]
    output: F32 | None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Tape:
    """A recording for passes of `width` rows. `source` is filled by the caller (None: tokens), `result` read.

    `choice` [width, 1]: each row's argmax of the result as fp32, −1 where a logit is not finite (a draft has none).
    """

    width: int
    ops: tuple[Op, ...]
    source: F32 | None
    result: F32
    choice: F32 | None = None


def _touched(instruction: Instruction) -> set[int]:
    values = (*instruction.inputs, *([instruction.output] if instruction.output else []))
    return {value.storage for value in values}


def assign_buffers(recording: Recording) -> tuple[dict[int, int], list[int]]:
    """Storage → buffer, and each buffer's fp32 values per row; a buffer is reused when its last reader has run.

    An output never shares a buffer with its instruction's inputs; source and result keep theirs. Only storages of one
    size share a buffer, so that a row's part of it is the same in all of them.
    """
    last_use: dict[int, int] = {}
    for index, instruction in enumerate(recording.instructions):
        last_use |= dict.fromkeys(_touched(instruction), index)
    placed: dict[int, int] = {}
    sizes: list[int] = []
    free: dict[int, list[int]] = {}

    def place(value: Value) -> None:
        size = value.storage_size
        if free.get(size):
            placed[value.storage] = free[size].pop()
        else:
            placed[value.storage] = len(sizes)
            sizes.append(size)

    kept = {value.storage for value in (recording.result, recording.choice) if value is not None}
    if recording.source is not None:
        place(recording.source)
        kept.add(recording.source.storage)
    for index, instruction in enumerate(recording.instructions):
        if instruction.output is not None and instruction.output.storage not in placed:
            place(instruction.output)
        for storage in sorted(_touched(instruction) - kept):
            if last_use[storage] == index:
                free.setdefault(sizes[placed[storage]], []).append(placed[storage])
    return placed, sizes


class _LastUsed:
    """Tapes by width, the few that were used last."""

    def __init__(self) -> None:
        self._tapes: OrderedDict[int, Tape] = OrderedDict()

    def get(self, width: int, make: Callable[[], Tape]) -> Tape:
        if width in self._tapes:
            self._tapes.move_to_end(width)
            return self._tapes[width]
        tape = self._tapes[width] = make()
        if len(self._tapes) > _KEPT_TAPES:
            self._tapes.popitem(last=False)
        return tape


class TapeMaker:
    """Tapes by width over one set of buffers; the few last used are kept."""

    def __init__(self, recording: Recording, max_rows: int, arrays: Arrays = IN_MEMORY) -> None:
        self.recording, self.max_rows = recording, max_rows
        self._placed, sizes = assign_buffers(recording)
        self._buffers: list[F32] = [arrays.empty((size * max_rows,), np.float32) for size in sizes]
        self._tapes = _LastUsed()

    @property
    def buffers(self) -> list[F32]:
        """What all widths share."""
        return self._buffers

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._buffers)

    def _resolve(self, width: int) -> Callable[[Value], F32]:
        """What gives the arrays of one tape's values; layers use the same few again and again."""
        known: dict[tuple[int, int, tuple[int, ...]], F32] = {}

        def array(value: Value) -> F32:
            place = self._placed[value.storage], value.start, value.row_shape
            if place not in known:
                rows = self._buffers[place[0]][: width * value.storage_size].reshape(width, -1)
                known[place] = rows[:, value.start : value.start + value.size].reshape(width, *value.row_shape)
            return known[place]

        return array

    def tape(self, width: int) -> Tape:
        """The tape of a pass of exactly `width` rows, 1..max_rows."""
        return self._tapes.get(width, lambda: self._make(width, None))

    def behind(self, before: Tape) -> Tape:
        """A tape that goes on with what `before` leaves: both, replayed as one. Not kept."""
        own = self._make(before.width, before.result)
        return Tape(own.width, before.ops + own.ops, before.source, own.result, own.choice)

    def _make(self, width: int, source: F32 | None) -> Tape:
        """With `source` [width, …] in the place of the recording's own, where there is one."""
        if not 1 <= width <= self.max_rows:
            raise ValueError(f"a pass has 1 to {self.max_rows} rows, got {width}")
        recording, array = self.recording, self._resolve(width)

        def place(value: Value) -> F32:
            if source is None or recording.source is None or value.storage != recording.source.storage:
                return array(value)
            return source.reshape(width, -1)[:, value.start : value.start + value.size].reshape(width, *value.row_shape)

        ops = tuple(
            Op(one, tuple(map(place, one.inputs)), None if one.output is None else place(one.output))
            for one in recording.instructions
        )
        return Tape(
            width,
            ops,
            None if recording.source is None else place(recording.source),
            place(recording.result),
            None if recording.choice is None else place(recording.choice),
        )


class WholeTapes:
    """Tapes of a body and its head in one, by width: a whole pass from tokens to logits and choices."""

    def __init__(self, body: TapeMaker, head: TapeMaker) -> None:
        self._body, self._head = body, head
        self._tapes = _LastUsed()

    def tape(self, width: int) -> Tape:
        """The tape of a pass of exactly `width` rows, as many as both makers have room for at most."""
        return self._tapes.get(width, lambda: self._head.behind(self._body.tape(width)))
