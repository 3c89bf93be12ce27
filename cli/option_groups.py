"""Options that several commands share, as one value: a command names the group, Typer sees the group's fields.

A group is a dataclass whose fields are annotated as Typer's parameters are. Its own checks run when it is made, before
the command does anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with every parameter that is an option group replaced, in place, by the group's fields."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, tuple[str, ...]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        shared = _parameters(kind)
        groups[name] = kind, tuple(one.name for one in shared)
        parameters += shared

    def run(**values: Any) -> None:
        made = {name: kind(**{one: values.pop(one) for one in own}) for name, (kind, own) in groups.items()}
        command(**values, **made)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _parameters(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
