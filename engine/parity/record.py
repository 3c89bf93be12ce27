"""A comparison that takes hours, kept as it goes: what the first setting answered, and which settings were equal since.

One JSON file. It counts only for the same identity (build, kernels, cache, prompts); another one, or a damaged file,
means beginning again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twofold.engine.parity.compare import Answer, Compared, Expected
from twofold.engine.parity.variants import Variant
from twofold.profiles.files import write_atomically

SCHEMA_VERSION = 1
MAX_BYTES = 64 << 20


@dataclass
class Record:
    """See the module; `path` None keeps nothing."""

    path: Path | None
    identity: Mapping[str, Any]
    expected: Expected = field(default_factory=dict)
    done: list[Compared] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path | None, identity: Mapping[str, Any]) -> Record:
        """What an earlier run left, or an empty one."""
        record = cls(path, dict(identity))
        if path is None:
            return record
        try:
            if path.stat().st_size > MAX_BYTES:
                return record
            document = json.loads(path.read_text("utf-8"))
            if document["schema_version"] != SCHEMA_VERSION or document["identity"] != record.identity:
                return record
            expected = {(one["mode"], int(one["prompt"])): _answer(one) for one in document["expected"]}
            done = [
                Compared(Variant(**one["variant"]), int(one["tokens"]), float(one["tokens_per_check"]))
                for one in document["done"]
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return record
        if done:  # without the setting that the others are compared with, nothing is
            record.expected, record.done = expected, done
        return record

    def add(self, found: Compared) -> None:
        """Note a setting that was equal.

        Raises:
            OSError: it cannot be written.
        """
        self.done.append(found)
        if self.path is None:
            return
        document = {
            "schema_version": SCHEMA_VERSION,
            "identity": self.identity,
            "expected": [
                {
                    "mode": mode,
                    "prompt": prompt,
                    "tokens": answer.tokens,
                    "logits": [digest.hex() for digest in answer.logits],
                    "checks": answer.checks,
                }
                for (mode, prompt), answer in self.expected.items()
            ],
            "done": [
                {"variant": asdict(one.variant), "tokens": one.tokens, "tokens_per_check": one.tokens_per_check}
                for one in self.done
            ],
        }
        write_atomically(self.path, json.dumps(document), mode=0o600)

    def close(self) -> None:
        """The comparison is over: the next one begins again."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _answer(one: Mapping[str, Any]) -> Answer:
    tokens, logits = tuple(map(int, one["tokens"])), tuple(map(bytes.fromhex, one["logits"]))
    if len(tokens) != len(logits):
        raise ValueError("an answer has one digest for each token")
    return Answer(tokens, logits, int(one["checks"]))
