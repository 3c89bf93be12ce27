"""What a clumsy or hostile person can type, as exit code and message, in this process and without a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from twofold import cli


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    sys.argv = ["twofold", *arguments]
    code = cli.main()
    found = capsys.readouterr()
    assert "Traceback" not in found.err and "unexpected" not in found.err
    return code, found.err


@pytest.fixture(autouse=True)
def _arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.delenv("TWOFOLD_DEBUG", raising=False)


@pytest.mark.parametrize("ctx", ["0", "-1", "1e9", "32X", "", "32KK", "nan", "inf", "９K", "9" * 40])
def test_contexts(capsys: pytest.CaptureFixture[str], ctx: str) -> None:
    code, text = said(capsys, "fit", "smollm2", "--card", "4090", "--ctx", ctx)
    assert code == 2
    assert "--ctx" in text and "needed: a number of tokens from 1" in text and "hint: --ctx 8K" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--card", ""), "hint: twofold cards"),
        (("--card", "nosuch"), "hint: twofold cards"),
        (("--card", "3060"), "can mean 2 cards"),
        (("--card", "4090", "--profile", "x"), "two different machines"),
        (("--card", "4090", "--ram", "nan"), "hint: --ram 32"),
        (("--card", "4090", "--ram", ""), "found:  ''"),
        (("--card", "4090", "--vram", "0"), "from 1 to 67,108,864"),
        (("--card", "4090", "--margin", "-1"), "from 0 to 1,048,576"),
        (("--card", "4090", "--ram", "8", "--ram-gb-s", "1e308"), "from 0.1 to 100,000"),
        (("--card", "4090", "--residual-bits", "9"), "hint: --residual-bits 6"),
        (("--card", "4090", "--kv", ""), "hint: --kv f16"),
        (("--card", "4090", "--kv-v", ""), "hint: --kv-v f16"),
        (("--card", "4090", "--activations", "int4"), "hint: --activations int16"),
        (("--card", "4090", "--activations", "int16/int8"), "needed: int16 or int8"),
        (("--activations", "int8", "--min-quality", "0.0015"), "hint: --activations int16"),
        (("--card", "4090", "--min-quality", ""), "found:  --min-quality ''"),
        (("--engine", "vllm"), "hint: --engine twofold"),
        (("--card", "4090", "--html", ""), "hint: --html fit.html"),
        (("--card", "4090", "--html", "-"), "hint: --html fit.html"),
        (("--card", "4090", "--html", "/dev/full"), "--html names no file"),
        (("--card", "4090", "--html", "/dev/stdout"), "--html names no file"),
        (("--storage", ""), "no URL"),
        (("--storage", "sqlite://"), "needed: sqlite:///FILE"),
        (("--storage", "sqlite:///"), "needed: sqlite:///FILE"),
        (("--storage", "sqlite:///:memory:"), "needed: sqlite:///FILE"),
        (("--storage", "sqlite:////nowhere/x.db?x=y"), "options that SQLite does not know"),
        (("--storage", "sqlite:///file:x?mode=memory&uri=true"), "options that SQLite does not know"),
        (("--profile", "~nouser/x.json"), "cannot read"),
    ],
)
def test_options(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str) -> None:
    code, text = said(capsys, "fit", "smollm2", *options)
    assert code == (1 if "nouser" in options[-1] else 2)
    assert words in text and "hint: " in text


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes")
def test_a_pipe_is_no_model_and_is_not_waited_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.gguf")
    for path in (str(tmp_path / "x.gguf"), "/dev/zero"):
        code, text = said(capsys, "fit", path, "--card", "4090")
        assert code == 1
        assert "a device, pipe or socket" in text and "hint: " in text


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes")
@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "endless"])
def test_settings_that_are_no_file(capsys: pytest.CaptureFixture[str], isolated_home: Path, kind: str) -> None:
    path = isolated_home / "config" / "config.toml"
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path.name if kind == "loop" else "/dev/zero")
    code, text = said(capsys, "fit", "smollm2", "--card", "4090")
    assert code == 2
    assert str(path) in text and "hint: " in text


@pytest.mark.parametrize("home", ["~nouser/x", "x" * 5000])
@pytest.mark.parametrize("command", [("profile", "list"), ("models", "prune", "--yes"), ("fit", "smollm2")])
def test_homes_that_cannot_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: str, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TWOFOLD_HOME", home)
    code, text = said(capsys, *command)
    assert code in (1, 2)
    assert "TWOFOLD_HOME" in text and len(text) < 1000


def test_a_model_below_an_unknown_home(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "fit", "~nouser/model.gguf", "--card", "4090")
    assert code == 1 and "there is no file or folder" in text


def test_a_proxy_of_an_unknown_kind(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "foo://x")
    code, text = said(capsys, "fit", "org/no-such-model", "--card", "4090")
    assert code == 1 and "hint: " in text


def test_a_name_that_is_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "fit", "x" * 5000)
    assert code == 2 and "too long" in text and "5,000 characters" in text and "printable" not in text


def test_the_command_for_a_picture_without_a_model_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "fit", "--html", "my fit.html")
    assert code == 2 and "hint: twofold fit Qwen/Qwen3-8B --html 'my fit.html'" in text
