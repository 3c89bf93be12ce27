"""Typed, bounded access to a model's configuration: a wrong type or an absurd size is an error that names the key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from twofold.profiles.errors import CorruptFile

MAX_DIMENSION = 1 << 20
MAX_LAYERS = 4096
MAX_VOCABULARY = 1 << 24
MAX_CONTEXT = 1 << 28
MAX_EXPERTS = 1 << 14
GET_AGAIN = "get the model's config.json (or GGUF file) again"


class Fields:
    """A configuration under a name for messages. `None` values count as absent, as Hugging Face writes them."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self.values = values
        self.name = name

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def damaged(self, key: str, needed: str) -> CorruptFile:
        found = self.values.get(key)
        return CorruptFile(
            f"the configuration of {self.name} cannot be used: {key}",
            found="nothing" if found is None else repr(found)[:80],
            needed=needed,
            hint=GET_AGAIN,
        )

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int = MAX_DIMENSION) -> int:
        """A whole number in `low..high`.

        Raises:
            CorruptFile: missing without a default, not a whole number, or out of range.
        """
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.damaged(key, f"a whole number from {low} to {high}")
        return value

    def used_experts(self, n_experts: int, *keys: str) -> int | None:
        """How many of `n_experts` a token uses, under the first of `keys` that is there; None where none is.

        Raises:
            CorruptFile: not a number of experts.
        """
        key = next((key for key in keys if self.has(key)), None)
        return None if key is None else self.integer(key, high=n_experts)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite positive number."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise self.damaged(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.damaged(key, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.damaged(key, "a text")
        return value

    def mapping(self, key: str) -> dict[str, Any] | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.damaged(key, "an object")
        return value

    def layer_kinds(self, n_layers: int, allowed: tuple[str, ...]) -> list[str] | None:
        """`layer_types`, plain or run-length coded ([[[kind, n], …], repeats] as one pattern); None when absent.

        Raises:
            CorruptFile: another shape, an unknown kind, or not one kind per layer.
        """
        value = self.values.get("layer_types")
        if value is None:
            return None
        kinds = _expand(value)
        if kinds is None or len(kinds) != n_layers or any(kind not in allowed for kind in kinds):
            raise self.damaged("layer_types", f"{n_layers} entries, each one of {', '.join(allowed)}")
        return kinds


def _expand(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        return None
    if all(isinstance(item, str) for item in value):
        return list(value)
    try:
        pattern, repeats = value
        kinds = [kind for kind, count in pattern for _ in range(min(int(count), MAX_LAYERS))]
        repeats = min(int(repeats), MAX_LAYERS // max(len(kinds), 1))
    except (TypeError, ValueError):
        return None
    return kinds * repeats if all(isinstance(kind, str) for kind in kinds) else None
