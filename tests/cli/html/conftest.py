"""The strict HTML reader, and one page to look at."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app


@pytest.fixture(scope="session")
def parse() -> Callable[[str], Any]:
    if "html_document" not in sys.modules:
        spec = importlib.util.spec_from_file_location("html_document", Path(__file__).parent / "document.py")
        assert spec is not None and spec.loader is not None
        sys.modules["html_document"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["html_document"])
    found: Callable[[str], Any] = sys.modules["html_document"].parse
    return found


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., str]:
    """`made(*arguments, code=0)` runs `fit --html` and gives the page's text."""

    def make(*arguments: str, code: int = 0) -> str:
        path = tmp_path / "report.html"
        command = ["fit", *arguments, "--html", str(path), "--trials", "0"]
        assert run_app(lambda: build_app()(command)) == code
        return path.read_text("utf-8")

    return make
