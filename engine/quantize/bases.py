"""The bases of a draft that is being refined: integer levels and scales, in the work folder between the walks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.profiles.errors import CorruptFile


@dataclass(frozen=True, slots=True)
class GivenBase:
    """A group's base, rotated and transposed as quantising works on it: levels int8 [K, rows] (the integers that codes
    stand for) and scales [n_groups, rows].
    """

    levels: Tensor
    scales: Tensor

    def values(self, group_size: int) -> Tensor:
        """The base's rotated weights, fp32 [K, rows]."""
        values = self.levels.float()
        for block, scale in zip(values.split(group_size), self.scales.float(), strict=True):
            block.mul_(scale)
        return values


class BaseStore:
    """Bases by their group's name, a file each for levels, scales and refined scales. Read whole, not mapped, as
    `rowstore` does.
    """

    def __init__(self, folder: Path, device: torch.device | str = "cpu") -> None:
        self._folder, self._device = folder, device

    def keep(self, group: str, base: GivenBase) -> None:
        """Store a group's base as it was rounded."""
        self._folder.mkdir(exist_ok=True)
        self._write(f"{group}.levels", base.levels)
        self._write(f"{group}.scales", base.scales)

    def keep_refined(self, scales: Mapping[str, Tensor]) -> None:
        """Store the trained scales fp16 [n_groups, rows] of every group."""
        for group, values in scales.items():
            self._write(f"{group}.refined", values)

    def levels(self, group: str) -> Tensor:
        return self._read(f"{group}.levels")

    def scales(self, group: str) -> Tensor:
        """The scales that the levels were rounded with."""
        return self._read(f"{group}.scales")

    def refined(self, group: str) -> GivenBase:
        """A group's base with its trained scales."""
        return GivenBase(self.levels(group), self._read(f"{group}.refined"))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npy"

    def _write(self, name: str, values: Tensor) -> None:
        path = self._path(name)
        with path.open("wb") as file:
            np.save(file, values.cpu().numpy())
            file.flush()
            os.fsync(file.fileno())

    def _read(self, name: str) -> Tensor:
        """
        Raises:
            CorruptFile: when the file is missing or damaged.
        """
        try:
            values: NDArray[Any] = np.load(self._path(name))
        except (OSError, ValueError, EOFError) as error:
            raise CorruptFile(
                f"the work file {self._path(name)} is missing or damaged", hint="start again with --force"
            ) from error
        return torch.from_numpy(values).to(self._device)
