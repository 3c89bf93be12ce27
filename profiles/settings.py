"""Where twofold keeps things, and settings: flag > `TWOFOLD_*` variable > one TOML file > default.

`TWOFOLD_HOME` moves everything under one folder; otherwise the platform's own folders are used (XDG on Linux).
"""

from __future__ import annotations

import os
from pathlib import Path


def _place(kind: str) -> Path:
    home = os.environ.get("TWOFOLD_HOME")
    if home:
        return Path(home).expanduser() / kind
    import platformdirs

    finder = {
        "cache": platformdirs.user_cache_path,
        "data": platformdirs.user_data_path,
        "state": platformdirs.user_state_path,
        "config": platformdirs.user_config_path,
    }[kind]
    return finder("twofold", appauthor=False)


def cache_dir() -> Path:
    """Downloads that can be had again (the default model's GGUF)."""
    return _place("cache")


def data_dir() -> Path:
    """Quantised checkpoints and imported profiles."""
    return _place("data")


def state_dir() -> Path:
    """What a user's sessions leave: history, plans, rank statistics. Never exported."""
    return _place("state")


def config_file() -> Path:
    """The one TOML file of settings (it need not exist)."""
    return _place("config") / "config.toml"


def checkpoints_dir() -> Path:
    """Quantised checkpoints, one folder each."""
    return data_dir() / "checkpoints"
