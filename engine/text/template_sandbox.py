"""The Jinja environment for chat templates: what published templates rely on, and nothing that reaches outside.

A template comes with a model and is not trusted: no attribute of Python's internals, no change of the messages, no
product or power that would fill the memory, and a bound on what it prints.
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_OUTPUT_CHARS = 16 << 20
MAX_REPEATED = 1 << 20
MAX_POWER_BITS = 1 << 12


class GenerationBlocks(Extension):
    """`{% generation %} … {% endgeneration %}`, which marks an answer for training: its body, as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """Refuses products and powers that are larger than any prompt."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and _power_bits(left, right) > MAX_POWER_BITS:
            raise SecurityError("a power that is too large")
        if operator == "*" and _repeated(left, right) > MAX_REPEATED:
            raise SecurityError("a repetition that is too long")
        return super().call_binop(context, operator, left, right)


def _power_bits(base: Any, exponent: Any) -> int:
    if not isinstance(base, int) or not isinstance(exponent, int) or exponent < 0:
        return 0
    return base.bit_length() * exponent


def _repeated(left: Any, right: Any) -> int:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(count, int):
            return len(sequence) * count
    return 0


def _raise(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


@functools.cache
def sandbox() -> Sandbox:
    """The environment, made once."""
    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def compile_template(source: str) -> Callable[..., str]:
    """A function from variables to text.

    Raises:
        jinja2.TemplateError: when the source is not a template, here, or when it fails, on a call.
    """
    template = sandbox().from_string(source)

    def render(**variables: Any) -> str:
        parts: list[str] = []
        n_chars = 0
        for part in template.generate(**variables):
            n_chars += len(part)
            if n_chars > MAX_OUTPUT_CHARS:
                raise SecurityError(f"it prints more than {MAX_OUTPUT_CHARS} characters")
            parts.append(part)
        return "".join(parts)

    return render
