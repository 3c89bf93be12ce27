"""Where twofold keeps things, and settings: flag > `TWOFOLD_*` variable > one TOML file > default.

`TWOFOLD_HOME` moves everything under one folder; otherwise the platform's own folders are used (XDG on Linux).
The keys and the variables are listed in `twofold.profiles.preferences`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.errors import InvalidOption

if TYPE_CHECKING:
    from twofold.profiles.activations import Activations
    from twofold.profiles.preferences import Key

MAX_CONFIG_BYTES = 1 << 20
_REMOVE = "correct it or move it away; twofold doctor lists what can be set"


def _place(kind: str) -> Path:
    home = os.environ.get("TWOFOLD_HOME")
    if home:
        return _expanded(home) / kind
    import platformdirs

    finder = {
        "cache": platformdirs.user_cache_path,
        "data": platformdirs.user_data_path,
        "state": platformdirs.user_state_path,
        "config": platformdirs.user_config_path,
    }[kind]
    return finder("twofold", appauthor=False)


def _expanded(home: str) -> Path:
    try:
        return Path(home).expanduser()
    except RuntimeError as error:
        raise InvalidOption(
            "TWOFOLD_HOME names the home of a user who does not exist",
            found=home,
            needed="a folder",
            hint="unset TWOFOLD_HOME, or give the whole path",
        ) from error


def cache_dir() -> Path:
    """Downloads that can be had again (the default model's GGUF)."""
    return _place("cache")


def data_dir() -> Path:
    """Quantised checkpoints and imported profiles."""
    return _place("data")


def state_dir() -> Path:
    """What a user's sessions leave: history, plans, rank statistics, observations."""
    return _place("state")


def config_file() -> Path:
    """The one TOML file of settings (it need not exist)."""
    return _place("config") / "config.toml"


def checkpoints_dir() -> Path:
    """Quantised checkpoints, one folder each."""
    return data_dir() / "checkpoints"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user configured. None means that the plan, the model or the machine decides."""

    default_model: str
    ctx: int | None
    kv: str | None
    activations: Activations | None
    min_quality: str | float | None
    margin_mib: int
    threads: int | None
    yes: bool
    offline: bool
    history: bool
    ranks: bool
    sessions: bool
    plain: bool
    no_progress: bool


def get_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings in force. `flags` are options of the command line by key; those that are None were not given.

    Raises:
        InvalidOption: for an unknown key, or a value that its key cannot have, naming where it was found.
    """
    return Settings(**{name: value for name, (value, _origin) in _resolve(flags).items()})


def describe_settings(flags: Mapping[str, Any] | None = None) -> list[tuple[str, Any, str]]:
    """Every setting as (name, value, origin), then the variables that have no key (value None = not set)."""
    from twofold.profiles.preferences import OTHER_VARIABLES

    listed = [(name, value, origin) for name, (value, origin) in _resolve(flags).items()]
    for variable in OTHER_VARIABLES:
        value = os.environ.get(variable)
        listed.append((variable, value, "environment" if value is not None else "not set"))
    return listed


def variables() -> dict[str, str]:
    """Every `TWOFOLD_*` variable that twofold reads, with its meaning."""
    from twofold.profiles.preferences import KEYS, OTHER_VARIABLES

    return OTHER_VARIABLES | {key.variable: key.meaning for key in KEYS}


def _resolve(flags: Mapping[str, Any] | None) -> dict[str, tuple[Any, str]]:
    """Key → (value, origin), by precedence: flag, variable, file, default."""
    from twofold.profiles.preferences import KEYS

    from_file = _read_file(config_file())
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    resolved: dict[str, tuple[Any, str]] = {}
    for key in KEYS:
        text = os.environ.get(key.variable)
        if key.name in given:
            resolved[key.name] = _read(key, given[key.name], f"--{key.name.replace('_', '-')}"), "flag"
        elif text:
            resolved[key.name] = _read(key, text, key.variable), key.variable
        elif key.name in from_file:
            resolved[key.name] = _read(key, from_file[key.name], f"{config_file()}: {key.name}"), str(config_file())
        else:
            resolved[key.name] = key.default, "default"
    return resolved


def _read(key: Key, value: Any, where: str) -> Any:
    from twofold.profiles.preferences import BadValue
    from twofold.profiles.text import one_line

    try:
        return key.read(value)
    except BadValue as error:
        raise InvalidOption(
            f"{where} is not valid ({key.meaning})",
            found=one_line(repr(value), 80),
            needed=str(error),
            hint="twofold doctor lists every setting and where it comes from",
        ) from error


def _read_file(path: Path) -> dict[str, Any]:
    """The TOML file's keys, checked against the known ones; empty where there is no file."""
    import tomllib

    from twofold.profiles.preferences import KEYS
    from twofold.profiles.text import one_line

    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise InvalidOption(
                f"{path} is not a file of settings",
                found="a folder, device or pipe",
                needed="a TOML file",
                hint=_REMOVE,
            )
        if facts.st_size > MAX_CONFIG_BYTES:
            raise InvalidOption(
                f"{path} is too large",
                found=f"{facts.st_size:,} bytes",
                needed=f"at most {MAX_CONFIG_BYTES:,} bytes",
                hint=_REMOVE,
            )
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        where = one_line(str(path), 200)
        hint = "set TWOFOLD_HOME to a folder that can be read" if os.environ.get("TWOFOLD_HOME") else _REMOVE
        raise InvalidOption(f"cannot read {where}", found=error.strerror, needed="a TOML file", hint=hint) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidOption(
            f"{path} is not valid TOML",
            found=one_line(str(error), 160),
            needed="lines such as: ctx = 8192",
            hint=_REMOVE,
        ) from error
    names = [key.name for key in KEYS]
    for name in found:
        if name not in names:
            raise InvalidOption(
                f"{path}: unknown key {one_line(name, 60)!r}",
                needed=f"one of {', '.join(names)}",
                hint=_nearest(name, names) or _REMOVE,
            )
    return found


def _nearest(name: str, names: list[str]) -> str | None:
    import difflib

    near = difflib.get_close_matches(name.lower().replace("-", "_"), names, n=1)
    return f"did you mean {near[0]}?" if near else None
