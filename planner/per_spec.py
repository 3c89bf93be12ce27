"""Memory for what depends on a model alone, so that a search does not add up the same layers hundreds of times.

Keyed by identity, not by value: hashing a model of a hundred layers takes longer than most of what is kept.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from twofold.profiles.model_spec import ModelSpec

R = TypeVar("R")
_KEPT_SPECS = 4


def per_spec(function: Callable[..., R]) -> Callable[..., R]:
    """Keep the results of `function(spec, *hashable arguments)` for the few specs used last.

    A kept spec is referred to, so that its identity cannot pass to another object meanwhile.
    """
    kept: OrderedDict[int, tuple[ModelSpec, dict[Hashable, R]]] = OrderedDict()

    @functools.wraps(function)
    def call(spec: ModelSpec, *arguments: Any) -> R:
        known, results = kept.get(id(spec), (None, {}))
        if known is not spec:
            results = {}
            kept[id(spec)] = (spec, results)
            if len(kept) > _KEPT_SPECS:
                kept.popitem(last=False)
        if arguments not in results:
            results[arguments] = function(spec, *arguments)
        return results[arguments]

    return call
