"""Flag before variable before file before default, and errors that name their place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from twofold.profiles.errors import InvalidOption
from twofold.profiles.preferences import KEYS
from twofold.profiles.settings import (
    cache_dir,
    config_file,
    data_dir,
    describe_settings,
    get_settings,
    state_dir,
    variables,
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key.variable, raising=False)


def _write(text: str | bytes) -> Path:
    path = config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_without_anything_the_defaults_hold() -> None:
    settings = get_settings()
    assert settings.default_model == "smollm2"
    assert settings.margin_mib == 512
    assert settings.ctx is None and settings.threads is None
    assert {origin for _, _, origin in describe_settings()} >= {"default"}


def test_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write('ctx = "16K"\nkv = "q8_0"\nthreads = 3\nhistory = false\n')
    monkeypatch.setenv("TWOFOLD_KV", "q4_0")
    monkeypatch.setenv("TWOFOLD_THREADS", "5")
    settings = get_settings({"threads": 7, "kv": None})
    assert (settings.ctx, settings.kv, settings.threads, settings.history) == (16384, "q4_0", 7, False)
    origins = {name: origin for name, _, origin in describe_settings({"threads": 7})}
    assert origins["ctx"] == str(path)
    assert (origins["kv"], origins["threads"], origins["plain"]) == ("TWOFOLD_KV", "flag", "default")


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("ctx = 8192", "ctx", 8192),
        ('ctx = "1M"', "ctx", 1 << 20),
        ('ctx = "25.6k"', "ctx", 25600),
        ('min_quality = "Q6"', "min_quality", "q6"),
        ("min_quality = 0.01", "min_quality", 0.01),
        ('offline = "yes"', "offline", True),
        ("yes = true", "yes", True),
        ('default_model = "org/name@main"', "default_model", "org/name@main"),
        ("margin_mib = 0", "margin_mib", 0),
    ],
)
def test_values_are_read(line: str, key: str, value: Any) -> None:
    _write(line)
    assert getattr(get_settings(), key) == value


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("ctx = 0", "ctx"),
        ("ctx = -1", "ctx"),
        ("ctx = 1000000000", "ctx"),
        ('ctx = "32X"', "ctx"),
        ("ctx = 1.5", "ctx"),
        ('ctx = "1.5"', "ctx"),
        ("ctx = true", "ctx"),
        ("threads = 0", "threads"),
        ('threads = "many"', "threads"),
        ('kv = "q5"', "kv"),
        ("kv = 8", "kv"),
        ('min_quality = "q7"', "min_quality"),
        ("min_quality = nan", "min_quality"),
        ("min_quality = -1", "min_quality"),
        ("margin_mib = -1", "margin_mib"),
        ('yes = "perhaps"', "yes"),
        ("plain = 2", "plain"),
        ("default_model = 3", "default_model"),
        ('default_model = "a\\nb"', "default_model"),
        ("default_model = []", "default_model"),
    ],
)
def test_a_bad_value_names_file_key_and_need(line: str, key: str) -> None:
    path = _write(line)
    with pytest.raises(InvalidOption) as refused:
        get_settings()
    assert str(path) in refused.value.what and key in refused.value.what
    assert refused.value.needed and refused.value.found
    assert refused.value.exit_code == 2


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_THREADS", "two\x1b[31m")
    with pytest.raises(InvalidOption) as refused:
        get_settings()
    assert "TWOFOLD_THREADS" in refused.value.what
    assert "\x1b" not in str(refused.value.found)


def test_an_unknown_key_suggests_the_nearest() -> None:
    path = _write("thread = 3")
    with pytest.raises(InvalidOption) as refused:
        get_settings()
    assert str(path) in refused.value.what
    assert refused.value.hint == "did you mean threads?"


@pytest.mark.parametrize("text", ["ctx = ", "[[", b"\xff\xfe", "ctx = 1\nctx = 2", "a = " + "[" * 5000])
def test_a_broken_file_is_refused(text: str | bytes) -> None:
    path = _write(text)
    with pytest.raises(InvalidOption, match=re.escape(str(path))):
        get_settings()


def test_every_variable_in_the_sources_is_in_the_table() -> None:
    """A variable that a room reads without being listed would be invisible to `doctor`."""
    root = Path(__file__).resolve().parents[2]
    rooms = ("cli", "planner", "engine", "probes", "profiles", "kernels")
    sources = [path for room in rooms for path in (root / room).rglob("*") if path.suffix in (".py", ".cpp", ".hpp")]
    assert len(sources) > 50
    read = re.compile(r"(?:environ|getenv)[^\n]{0,20}[\"'](TWOFOLD_[A-Z_]+)[\"']")
    found = {name for path in sources for name in read.findall(path.read_text("utf-8", "replace"))}
    assert "TWOFOLD_HOME" in found
    assert found <= set(variables())


def test_folders_follow_the_home_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TWOFOLD_HOME", str(tmp_path))
    assert {cache_dir(), data_dir(), state_dir(), config_file().parent} == {
        tmp_path / "cache", tmp_path / "data", tmp_path / "state", tmp_path / "config"
    }  # fmt: skip
    monkeypatch.delenv("TWOFOLD_HOME")
    assert cache_dir().is_absolute() and "twofold" in str(cache_dir())
