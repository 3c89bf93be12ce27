"""`WeightSource`: what quantising and evaluating ask of a model's weight files."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from twofold.engine.checkpoint.layout import EMBEDDING, norm_shapes
from twofold.profiles.errors import CorruptFile
from twofold.profiles.files import file_sha256
from twofold.profiles.model_spec import ModelSpec

HEAD = "lm_head.weight"
NORM = "norm.weight"

Float32 = npt.NDArray[np.float32]

Rows = slice | npt.NDArray[np.intp]
"""Which indices of a tensor's first axis."""
EVERY_ROW = slice(None)


class WeightSource(ABC):
    """Tensors by Hugging Face name. Opening checks sizes and spans; values are read when asked for."""

    def __init__(self, path: Path, *, tied: bool, norm_offset: float = 0.0) -> None:
        """`norm_offset` is what a norm's stored weight lacks: 1 where a model stores the distance from one."""
        self.path = path
        self.tied = tied
        self.norm_offset = norm_offset

    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every stored tensor by its Hugging Face name."""

    @abstractmethod
    def _read(self, name: str, rows: Rows = EVERY_ROW) -> Float32:
        """The values of a stored tensor, or of these indices of its first axis."""

    @abstractmethod
    def dtype_note(self) -> str:
        """How the values are stored, for provenance: "bfloat16", "Q4_1/Q8_0 dequantised"."""

    @abstractmethod
    def _files(self) -> list[Path]:
        """The weight files, in a fixed order."""

    @abstractmethod
    def close(self) -> None:
        """Release the files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self) -> tuple[str, ...]:
        """The stored tensors; a tied head is not among them, though `tensor` answers for it."""
        return tuple(self.shapes)

    def stored_name(self, name: str) -> str:
        """The tensor that holds `name`'s values: the embedding for a tied head."""
        return EMBEDDING if name == HEAD and self.tied else name

    def has(self, name: str) -> bool:
        return self.stored_name(name) in self.shapes

    def tensor(self, name: str) -> Float32:
        """The values of `name` as float32, in Hugging Face's layout ([out_features, in_features] for a Linear).

        A norm's weight is the factor itself, whatever the source stores.

        Raises:
            CorruptFile: not stored, or not finite.
        """
        return self.rows(name, EVERY_ROW)

    def rows(self, name: str, rows: Rows) -> Float32:
        """The same of some indices of the first axis, without reading the others: a vocabulary is too large to be held
        in float32.

        Raises:
            CorruptFile: not stored, or not finite where read.
        """
        stored = self.stored_name(name)
        if stored not in self.shapes:
            raise CorruptFile(f"{self.path.name} lacks the tensor {name}", hint="get the model again")
        values = self._read(stored, rows)
        if not np.isfinite(values).all():
            bad = values.size - int(np.isfinite(values).sum())
            raise CorruptFile(
                f"{self.path.name}: the tensor {name} holds values that are not finite",
                found=f"{bad} of {values.size} are NaN or infinite",
                needed="finite values",
                hint="get the model again",
            )
        return values + np.float32(self.norm_offset) if self.norm_offset and name.endswith(NORM) else values

    def check_complete(self, spec: ModelSpec) -> None:
        """Compare with what the spec asks for.

        Raises:
            CorruptFile: tensors that are missing or have another shape (all are listed).
        """
        problems = []
        for name, shape in required_tensors(spec):
            stored = self.stored_name(name)
            if stored not in self.shapes:
                problems.append(f"{name} is missing")
            elif tuple(self.shapes[stored]) != shape:
                problems.append(f"{name} is {list(self.shapes[stored])} instead of {list(shape)}")
        if problems:
            shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
            raise CorruptFile(
                f"{self.path.name} does not hold the weights that its configuration describes",
                found=shown,
                hint="get the model again",
            )

    def sha256(self) -> str:
        """The source's fingerprint: of the one file, or of the lines "name sha256" of all files in order."""
        files = self._files()
        if len(files) == 1:
            return file_sha256(files[0])
        lines = "".join(f"{path.name} {file_sha256(path)}\n" for path in files)
        return hashlib.sha256(lines.encode()).hexdigest()


def required_tensors(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor that the spec's graph asks for.

    Raises:
        UnsupportedModel: when the engine has no graph for the model.
    """
    yield EMBEDDING, (spec.vocab_size, spec.hidden_size)
    yield from norm_shapes(spec).items()
    for group in spec.groups:
        for member in group.members:
            yield f"{member.name}.weight", (member.out_features, member.in_features)
            if member.bias:
                yield f"{member.name}.bias", (member.out_features,)
