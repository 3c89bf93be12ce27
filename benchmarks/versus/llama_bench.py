"""A person's own llama.cpp build, timed by its `llama-bench` and read from its JSON.

`llama-bench` decodes random tokens behind an empty cache (or one of `-d` tokens, where it knows the option): the passes
are those of an answer, the tokens are not. It gives no logits, so the quality of its arithmetic stays unknown.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twofold.profiles.errors import EngineFailed, InvalidOption

SECONDS = 600.0
_NAMED = ("build_commit", "build_number", "cpu_info", "backends", "n_threads", "type_k", "type_v", "flash_attn")


class LlamaBench:
    """`llama-bench` on one GGUF file.

    Raises:
        InvalidOption: not a program that prints llama-bench's JSON.
    """

    def __init__(self, binary: Path, path: Path, threads: int) -> None:
        self._binary, self._path, self._threads = binary, path, threads
        if not binary.is_file():
            raise InvalidOption(f"--binary {binary} is not a file", hint="give the path of llama-bench")
        self._knows_depth = "--n-depth" in self._output(["--help"])
        self._about: dict[str, Any] = {}

    def decode_speed(self, n_tokens: int, behind: int) -> float:
        """Tokens per second of a generation of `n_tokens`, behind `behind` tokens where the build can do that."""
        depth = ["-d", str(behind)] if self._knows_depth and behind > 0 else []
        return self._speed(["-p", "0", "-n", str(n_tokens), *depth])

    def prefill_speed(self, n_tokens: int) -> float:
        """Tokens per second of a prompt of `n_tokens`."""
        return self._speed(["-p", str(n_tokens), "-n", "0"])

    def about(self) -> dict[str, Any]:
        """What the last run said about its build."""
        commit, number = self._about.get("build_commit", "unknown"), self._about.get("build_number", "unknown")
        return {
            "version": f"{self._binary.name}, build {number} ({commit})",
            "features": str(self._about.get("backends", "unknown")),
            "behind_prompt": self._knows_depth,
            "run": self._about,
        }

    def _speed(self, what: Sequence[str]) -> float:
        common = ["-m", str(self._path), "-t", str(self._threads), "-ngl", "0", "-r", "1", "-o", "json"]
        row = parse_row(self._output([*common, *what]), self._binary)
        self._about = {name: row[name] for name in _NAMED if name in row}
        return float(row["avg_ts"])

    def _output(self, arguments: Sequence[str]) -> str:
        command = [str(self._binary), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InvalidOption(f"--binary {self._binary} cannot be run: {error}") from None
        if done.returncode != 0:
            raise EngineFailed(
                f"{self._binary.name} ended with {done.returncode}", found=done.stderr.strip()[-300:] or "no message"
            )
        return done.stdout


def parse_row(text: str, binary: Path) -> dict[str, Any]:
    """The one result of a llama-bench run.

    Raises:
        InvalidOption: not llama-bench's JSON, or not one result.
    """
    try:
        rows = json.loads(text)
        if not (isinstance(rows, list) and len(rows) == 1 and float(rows[0]["avg_ts"]) > 0):
            raise ValueError("not one result with a speed")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidOption(
            f"{binary.name} does not answer like llama-bench: {error}",
            found=text.strip()[:80] or "no output",
            needed="a JSON list with one result",
            hint="give the llama-bench of the same folder: llama-cli prints no JSON",
        ) from None
    row: dict[str, Any] = rows[0]
    return row
