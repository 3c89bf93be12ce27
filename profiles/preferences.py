"""The settings' keys, their types and ranges, and how a text from a variable or the TOML file becomes a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twofold.profiles.activations import CHOICES as ACTIVATIONS

DEFAULT_MODEL = "smollm2"
KV_TYPES = ("f16", "q8_0", "q4_0")
QUALITY_CLASSES = ("q8", "q6", "q4")
MAX_CONTEXT_TOKENS = 1 << 28

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")
_TOKENS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([kKmM]?)")
_UNITS = {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}


class BadValue(ValueError):
    """A value that a key cannot have; the text says what is needed."""


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: TOML key, variable, default (None = decided by the plan), meaning, and the reader of its values."""

    name: str
    default: Any
    meaning: str
    read: Callable[[Any], Any]

    @property
    def variable(self) -> str:
        return f"TWOFOLD_{self.name.upper()}"


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE:
        return True
    if isinstance(value, str) and value.strip().lower() in _FALSE:
        return False
    raise BadValue("true or false")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 4096 or not value.isprintable():
        raise BadValue("text on one line")
    return value.strip()


def _whole(low: int, high: int) -> Callable[[Any], int]:
    needed = f"a whole number from {low} to {high}"

    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,12}\s*", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadValue(needed)
        return value

    return read


def tokens(value: Any) -> int:
    """A context size: 4096, "32K" (32768), "25.6k" (25600): a capital unit is binary, a small one decimal.

    Raises:
        BadValue: not a number of tokens, or not between 1 and 2^28.
    """
    needed = f"a number of tokens from 1 to {MAX_CONTEXT_TOKENS}, like 8192, 32K or 1M"
    if isinstance(value, str):
        match = _TOKENS.fullmatch(value.strip())
        if match is None:
            raise BadValue(needed)
        count = float(match[1]) * _UNITS[match[2]]
        value = int(count) if count == int(count) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_CONTEXT_TOKENS:
        raise BadValue(needed)
    return value


def _choice(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value.strip().lower() not in choices:
            raise BadValue(f"one of {', '.join(choices)}")
        return value.strip().lower()

    return read


def quality(value: Any) -> str | float:
    """A quality floor: a class (q8, q6, q4) or a KL divergence in nats between 0 and 10."""
    needed = f"one of {', '.join(QUALITY_CLASSES)}, or a KL divergence above 0 and at most 10"
    if isinstance(value, str) and value.strip().lower() in QUALITY_CLASSES:
        return value.strip().lower()
    try:
        number = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError) as error:
        raise BadValue(needed) from error
    if not 0 < number <= 10:
        raise BadValue(needed)
    return number


KEYS = (
    Key("default_model", DEFAULT_MODEL, "the model that `chat` opens without an argument", _text),
    Key("ctx", None, "context in tokens", tokens),
    Key("kv", None, "type of the KV cache", _choice(*KV_TYPES)),
    Key("activations", None, "activations of products: int16, or int8 where that is enough", _choice(*ACTIVATIONS)),
    Key("min_quality", None, "the quality floor of a plan", quality),
    Key("margin_mib", 512, "memory left free per device", _whole(0, 1 << 20)),
    Key("threads", None, "processor threads", _whole(1, 4096)),
    Key("yes", False, "answer every question with yes", _flag),
    Key("offline", False, "fetch nothing; use what is on this disk", _flag),
    Key("history", True, "keep the history of chat inputs", _flag),
    Key("ranks", True, "keep counts of how drafts fare, per model, for the next start", _flag),
    Key("sessions", True, "keep what each session took and how fast it was, for the next plan", _flag),
    Key("plain", False, "answers of `chat` as raw text, without Markdown", _flag),
    Key("no_progress", False, "no progress bars", _flag),
)

# Variables that are read where they act, and have no key in the file.
OTHER_VARIABLES = {
    "TWOFOLD_HOME": "one folder for cache, data, state and configuration",
    "TWOFOLD_DEBUG": "1 prints tracebacks",
    "TWOFOLD_REQUIRE_NATIVE": "1 makes a missing native module an error at import",
    "TWOFOLD_PIN": "0 leaves the threads of the CPU kernels unpinned",
    "TWOFOLD_CPU_ISA": "lowers the instruction set of the CPU kernels: generic, avx2, avx512, avx512vbmi",
}
