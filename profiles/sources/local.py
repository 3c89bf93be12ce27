"""What a local path holds: a model folder, an own checkpoint, a GGUF file, or something else (and what)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from twofold.profiles.errors import CorruptFile, ModelNotFound, UnsafeFile, UnsupportedModel
from twofold.profiles.readers.local import is_own_checkpoint, read_json_object

LocalKind = Literal["folder", "gguf", "checkpoint"]

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_CONVERT = (
    "convert it to safetensors (for example with the convert Space of the Hub), or use the model's safetensors files"
)
_SHOWN = 6
_NEEDED = "a .gguf file or a model folder"


def classify(path: Path) -> tuple[LocalKind, Path]:
    """The kind of an existing path, and the path to use (a folder with one GGUF file gives that file).

    Raises:
        UnsafeFile: a pickle. CorruptFile, UnsupportedModel, ModelNotFound: something else, with what it holds.
    """
    return _classify_folder(path) if path.is_dir() else _classify_file(path)


def _classify_file(path: Path) -> tuple[LocalKind, Path]:
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise UnsafeFile(
            f"{path.name} is a pickle: loading it could run any code",
            needed="safetensors or GGUF",
            hint=_CONVERT,
        )
    if path.suffix.lower() == ".safetensors":
        raise UnsupportedModel(
            f"{path.name} holds tensors without a model's configuration",
            needed="the folder with config.json",
            hint=f"give the folder: {path.parent}",
        )
    if not path.is_file():
        raise CorruptFile(
            f"{path.name} is not a model", found="a device, pipe or socket", needed=_NEEDED, hint="check the path"
        )
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic == b"GGUF" or path.suffix.lower() == ".gguf":
        return "gguf", path
    raise CorruptFile(
        f"{path.name} is not a model",
        found=f"a file that starts with {magic!r}" if magic else "an empty file",
        needed=_NEEDED,
        hint="give a .gguf file, or the folder of config.json and *.safetensors",
    )


def _classify_folder(path: Path) -> tuple[LocalKind, Path]:
    names = sorted(entry.name for entry in path.iterdir())
    if "config.json" in names:
        config = read_json_object(path / "config.json")
        if is_own_checkpoint(config):
            return "checkpoint", path
        _refuse_pickles_only(path, names)
        return "folder", path
    if any(name.startswith("base-") and name.endswith(".safetensors") for name in names):
        raise CorruptFile(
            f"{path.name} is an unfinished quantisation (it has no config.json)",
            hint="quantise again to resume it, or: twofold models prune",
        )
    _refuse_pickles_only(path, names)
    ggufs = [name for name in names if name.lower().endswith(".gguf") and not name.startswith("mmproj")]
    if len(ggufs) == 1:
        return "gguf", path / ggufs[0]
    if ggufs:
        raise ModelNotFound(
            f"{path.name} holds {len(ggufs)} GGUF files", needed="one of them", hint=f"name it: {path / ggufs[0]}"
        )
    raise ModelNotFound(
        f"{path.name or path} is not a model folder",
        found=_inventory(names),
        needed="config.json with *.safetensors, or a .gguf file",
        hint="name the folder or file that holds the model, or a Hub id (org/name)",
    )


def _refuse_pickles_only(path: Path, names: list[str]) -> None:
    pickles = [name for name in names if name.lower().endswith(PICKLE_SUFFIXES)]
    if pickles and not any(name.lower().endswith((".safetensors", ".gguf")) for name in names):
        raise UnsafeFile(
            f"{path.name} holds only pickled weights: loading them could run any code",
            found=_inventory(pickles),
            needed="*.safetensors",
            hint=_CONVERT,
        )


def _inventory(names: list[str]) -> str:
    if not names:
        return "an empty folder"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
