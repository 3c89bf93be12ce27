"""What twofold keeps on this disk: fetched sources, quantised checkpoints, and what interruptions left behind."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from twofold.profiles.errors import TwofoldError
from twofold.profiles.figures import Figure, unknown
from twofold.profiles.locks import is_held
from twofold.profiles.readers.local import is_own_checkpoint, read_json_object
from twofold.profiles.settings import checkpoints_dir
from twofold.profiles.sources.aliases import ALIASES
from twofold.profiles.sources.wheel import PARTIAL_PREFIX, models_dir

EntryKind = Literal["source", "hub cache", "checkpoint", "unfinished", "partial download", "replaced"]
UNFINISHED_SUFFIX = ".partial"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing on disk. `last_used` is the file system's date of last access or change; `note` says what is wrong."""

    kind: EntryKind
    name: str
    path: Path
    size_bytes: int
    last_used: datetime.date | None
    residual_bits: int | None = None
    kl: Figure | None = None
    note: str = ""


def kept() -> list[Entry]:
    """Sources and checkpoints, finished or not, each sorted by name."""
    return [*_sources(), *_hub_cache(), *_checkpoints()]


def leftovers() -> list[Entry]:
    """What `prune` may remove: nothing that a running process holds, and nothing that is whole."""
    return [*_partial_downloads(), *(entry for entry in _checkpoints() if entry.kind == "unfinished"), *_replaced()]


def checkpoint_lock(path: Path) -> Path:
    """The lock of a checkpoint's folder (an unfinished one has its finished name's)."""
    return path.with_name(f".{path.name.removesuffix(UNFINISHED_SUFFIX)}.lock")


def _sources() -> Iterator[Entry]:
    names = {model.file_name: model.alias for model in ALIASES.values()}
    for path in _children(models_dir()):
        if path.is_file() and path.suffix == ".gguf":
            yield Entry("source", names.get(path.name, path.name), path, tree_bytes(path), _last_used(path))


def _hub_cache() -> Iterator[Entry]:
    """Models in the Hub client's own cache; read without the client, whose import is slow."""
    for path in _children(hub_cache_dir()):
        snapshots = _children(path / "snapshots") if path.name.startswith("models--") else []
        if any(any(folder.glob("*.safetensors")) or any(folder.glob("*.gguf")) for folder in snapshots):
            name = path.name.removeprefix("models--").replace("--", "/", 1)
            yield Entry("hub cache", name, path, tree_bytes(path / "blobs"), _last_used(path / "snapshots"))


def hub_home_dir() -> Path:
    """Where the Hub client keeps cache and token, by its own documented variables (without importing it)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(os.environ.get("HF_HOME") or cache / "huggingface").expanduser()


def hub_cache_dir() -> Path:
    """Where the Hub client keeps its files."""
    return Path(os.environ.get("HF_HUB_CACHE") or hub_home_dir() / "hub").expanduser()


def _checkpoints() -> Iterator[Entry]:
    for path in _children(checkpoints_dir()):
        if not path.is_dir() or path.name.startswith("."):
            continue
        if path.name.endswith(UNFINISHED_SUFFIX):
            if (path / "state.json").is_file() or (path / "streams").is_dir():
                held = is_held(checkpoint_lock(path))
                note = "being quantised now" if held else "unfinished"
                yield Entry("unfinished", path.name, path, tree_bytes(path), _last_used(path), note=note)
            continue
        yield _checkpoint(path)


def _checkpoint(path: Path) -> Entry:
    size, used = tree_bytes(path), _last_used(path / "config.json")
    try:
        config = read_json_object(path / "config.json")
    except (TwofoldError, OSError) as error:
        return Entry("checkpoint", path.name, path, size, used, note=f"damaged: {error}")
    if not is_own_checkpoint(config):
        return Entry("checkpoint", path.name, path, size, used, note="not a twofold checkpoint")
    quantization = config["quantization_config"]
    bits = _dig(quantization, "residual", "bits")
    return Entry("checkpoint", path.name, path, size, used, bits if isinstance(bits, int) else None, _kl(quantization))


def _kl(quantization: dict[str, Any]) -> Figure:
    """The verifier's KL as the evaluation stored it: a figure, or a bare number."""
    stored = _dig(quantization, "measured", "rows", "verifier", "kl")
    value = stored.get("value") if isinstance(stored, dict) else stored
    if isinstance(value, bool) or not isinstance(value, int | float):
        return unknown("nats", "not measured; twofold eval measures it")
    return Figure(float(value), "nats", "measured", "twofold eval, stored in the checkpoint")


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _partial_downloads() -> Iterator[Entry]:
    folder = models_dir()
    # A partial folder does not say whose it is: while anything is being fetched, all of them stay.
    if any(is_held(lock) for lock in folder.glob(".*.lock")):
        return
    for path in _children(folder):
        if path.is_dir() and path.name.startswith(PARTIAL_PREFIX):
            yield Entry("partial download", path.name, path, tree_bytes(path), _last_used(path))


def _replaced() -> Iterator[Entry]:
    """Checkpoints that a newer one has replaced, where the removal was interrupted."""
    for path in _children(checkpoints_dir()):
        name = path.name.removeprefix(".").removesuffix(".old")
        if path.is_dir() and path.name == f".{name}.old" and (path.with_name(name) / "config.json").is_file():
            yield Entry("replaced", path.name, path, tree_bytes(path), _last_used(path))


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def tree_bytes(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are not followed."""
    try:
        if not path.is_dir() or path.is_symlink():
            return path.lstat().st_size
        return sum(item.lstat().st_size for item in path.rglob("*") if item.is_file() and not item.is_symlink())
    except OSError:
        return 0


def _last_used(path: Path) -> datetime.date | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return datetime.date.fromtimestamp(max(status.st_atime, status.st_mtime))
