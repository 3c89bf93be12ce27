"""Settings that commands obey: what `twofold doctor` lists has an effect."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from twofold import cli
from twofold.cli import launch
from twofold.cli.errors import run_app
from twofold.cli.launch_options import LaunchOptions
from twofold.cli.output import Sink, confirm
from twofold.kernels.cpu import missing_reason
from twofold.profiles.errors import InvalidOption, ModelNotFound
from twofold.profiles.sources import fetch, read_spec, resolve


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("arguments", "model"), [((), "org/set"), (("org/named",), "org/named")])
def test_chat_opens_the_default_model_of_the_settings(
    isolated_home: object, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], model: str
) -> None:
    asked: list[LaunchOptions] = []
    monkeypatch.setattr(launch, "launch", asked.append)
    monkeypatch.setenv("TWOFOLD_DEFAULT_MODEL", "org/set")
    monkeypatch.setattr(sys, "argv", ["twofold", "chat", *arguments])
    assert cli.main() == 0
    assert [options.model for options in asked] == [model]


def test_the_setting_yes_answers_for_everyone(isolated_home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(InvalidOption, match="not confirmed"):
        confirm("remove it?", assume_yes=False, hint="--yes")
    monkeypatch.setenv("TWOFOLD_YES", "1")
    confirm("remove it?", assume_yes=False, hint="--yes")


@pytest.mark.parametrize(("value", "silent"), [("1", True), ("0", False)])
def test_the_setting_no_progress(
    isolated_home: object, monkeypatch: pytest.MonkeyPatch, value: str, silent: bool
) -> None:
    monkeypatch.setenv("TWOFOLD_NO_PROGRESS", value)
    assert Sink(Terminal()).progress().disable is silent


@pytest.mark.parametrize("model", ["org/name", "smollm2"])
def test_offline_asks_nobody(
    isolated_home: object, monkeypatch: pytest.MonkeyPatch, tmp_path: object, model: str
) -> None:
    monkeypatch.setenv("TWOFOLD_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(ModelNotFound, match="stay offline"):
        fetch(resolve(model))


def test_offline_still_knows_what_ships(isolated_home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_OFFLINE", "1")
    assert read_spec(resolve("google/gemma-4-31B-it")).n_layers > 0
    with pytest.raises(ModelNotFound, match="stay offline"):
        read_spec(resolve("org/unknown"))


def test_a_no_is_no_error(isolated_home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    monkeypatch.setattr(sys, "stderr", shown)
    nothing = "nothing was downloaded or written"
    code = run_app(lambda: confirm("quantise it?", assume_yes=False, hint="--yes", declined=nothing))
    assert code == 1 and f"stopped: {nothing}" in shown.getvalue()
    assert "error" not in shown.getvalue() and "hint" not in shown.getvalue() and "\x1b" not in shown.getvalue()


def _fit(*arguments: str, isa: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the native module reads the variable once."""
    command = [sys.executable, "-m", "twofold", "fit", *arguments]
    environment = os.environ | {"TWOFOLD_CPU_ISA": isa}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(missing_reason() is not None, reason="needs the native module")
def test_a_forced_instruction_set_is_planned_with(isolated_home: object) -> None:
    done = _fit("smollm2", "--format", "json", isa="generic")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plan"]["cpu_isa"] == "generic"


@pytest.mark.skipif(missing_reason() is not None, reason="needs the native module")
def test_an_unknown_instruction_set_is_an_error_in_fit_as_in_chat(isolated_home: object) -> None:
    for arguments in (["smollm2"], []):
        done = _fit(*arguments, isa="nonsense")
        assert (done.returncode, done.stdout) == (2, "")
        assert "TWOFOLD_CPU_ISA=nonsense" in done.stderr and done.stderr.endswith("hint: unset TWOFOLD_CPU_ISA\n")
    assert _fit("smollm2", "--card", "4090", isa="nonsense").returncode == 0  # about another machine
