"""The small model of the session's tests, and the command line on it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _tiny_model() -> ModuleType:
    if "tiny_model" not in sys.modules:
        spec = importlib.util.spec_from_file_location("tiny_model", Path(__file__).parent / "repl" / "tiny_model.py")
        assert spec is not None and spec.loader is not None
        sys.modules["tiny_model"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["tiny_model"])
    return sys.modules["tiny_model"]


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder of a small random model with a byte vocabulary."""
    folder: Path = _tiny_model().write_model(tmp_path_factory.mktemp("repl") / "tiny")
    return folder


@pytest.fixture
def tiny_session(tiny_checkpoint: Path) -> Any:
    """A session with the small model, eight tokens an answer."""
    from twofold.engine.session import Session

    launched = _tiny_model().open_model(tiny_checkpoint)
    return Session(launched.engine, launched.tokenizer, launched.template, max_tokens=8)


@pytest.fixture
def terminal(tiny_checkpoint: Path) -> Iterator[Callable[..., Any]]:
    """`terminal(*arguments, **environment)` runs the command line in a pty."""
    opened: list[Any] = []

    def run(*arguments: str, **environment: str) -> Any:
        opened.append(_tiny_model().Terminal(tiny_checkpoint, *arguments, **environment))
        return opened[-1]

    yield run
    for one in opened:
        one.close()


@pytest.fixture
def start_command(tiny_checkpoint: Path) -> Callable[..., Any]:
    """`start_command(*arguments)` starts the command line as a process with pipes."""
    import subprocess

    script = Path(__file__).parent / "repl" / "tiny_model.py"

    def start(*arguments: str) -> Any:
        command = [sys.executable, str(script), str(tiny_checkpoint), *arguments]
        pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        return subprocess.Popen(command, **pipes)  # type: ignore[call-overload]

    return start


@pytest.fixture
def command_line(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`command_line(*arguments, stdin=b"")` runs the command line in this process; gives the exit code."""
    import io

    from twofold import cli
    from twofold.cli import launch

    tiny = _tiny_model()

    def run(*arguments: str, stdin: bytes = b"") -> int:
        monkeypatch.setattr(launch, "launch", lambda *_: tiny.open_model(tiny_checkpoint), raising=False)
        monkeypatch.setattr(sys, "argv", ["twofold", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        return cli.main()

    return run
