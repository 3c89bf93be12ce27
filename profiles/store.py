"""Where profiles are kept: this machine's last probe in the state folder, others' profiles in the data folder.

A stored profile is one JSON file, written whole or not at all, and validated again whenever it is read.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from twofold.profiles.errors import InvalidOption, InvalidProfile
from twofold.profiles.export import document_of, to_bytes
from twofold.profiles.files import write_atomically
from twofold.profiles.hardware import HardwareProfile
from twofold.profiles.importing import read_profile
from twofold.profiles.settings import data_dir, state_dir
from twofold.profiles.text import one_line

OWN = "this-machine"
"""The name under which this machine's last probe is listed and found."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Stored:
    """A profile on disk. `profile` is None where the file is broken; `problem` then says why."""

    name: str
    path: Path
    profile: HardwareProfile | None
    problem: str | None = None


def profiles_dir() -> Path:
    """Imported profiles, one file each."""
    return data_dir() / "profiles"


def own_path() -> Path:
    """The last probe of this machine."""
    return state_dir() / "machine.json"


def save_own(profile: HardwareProfile) -> Path:
    """Keep `profile` as this machine's last probe; returns where."""
    write_atomically(own_path(), to_bytes(document_of(profile)))
    return own_path()


def load_own() -> HardwareProfile | None:
    """This machine's last probe, or None where there is none yet.

    Raises:
        InvalidProfile: when the file is damaged or of another schema version (`twofold probe` makes it anew).
    """
    if not own_path().exists():
        return None
    try:
        return read_profile(own_path())
    except InvalidProfile as error:
        raise InvalidProfile(error.what, found=error.found, needed=error.needed, hint="twofold probe") from error


def save_imported(profile: HardwareProfile, name: str | None = None) -> Stored:
    """Keep somebody's profile under `name`, or under a name made from what it describes.

    The same content under the same name is not written again; another content gets a numbered name, or is refused
    where `name` was given.

    Raises:
        InvalidOption: when `name` is malformed or belongs to another profile.
    """
    data = to_bytes(document_of(profile))
    names: Iterable[str] = [_checked(name)] if name is not None else _numbered(slug(profile))
    for candidate in names:
        path = profiles_dir() / f"{candidate}.json"
        try:
            write_atomically(path, data, replace=False)
        except FileExistsError:
            if path.read_bytes() != data:
                continue
        return Stored(candidate, path, profile)
    raise InvalidOption(
        f"a different profile is already stored as {name!r}",
        needed="a free name",
        hint=f"twofold profile show {name}, or choose another --name",
    )


def _numbered(base: str) -> Iterator[str]:
    yield base
    for i in itertools.count(2):
        yield f"{base}-{i}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name) or name == OWN or name.endswith(".json"):
        raise InvalidOption(
            f"{one_line(name, 80)!r} cannot name a profile",
            needed=f"1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit, not {OWN!r} and without .json",
            hint="--name friends-machine, or leave out --name",
        )
    return name


def slug(profile: HardwareProfile) -> str:
    """A short name for a machine: its cards or its processor, and its memory (`2x-rtx-3090-64g`)."""
    words = _card_words(profile) or _slugged(str(profile.cpu.model.value or "cpu"), 40)
    total = profile.ram.total_mib
    memory = f"-{round(total.number / 1024)}g" if total.is_known else ""
    return f"{words or 'machine'}{memory}"


def _card_words(profile: HardwareProfile) -> str:
    if not profile.gpus:
        return ""
    first = profile.gpus[0].name
    name = _slugged(re.sub(r"\b(nvidia|geforce|amd|radeon|intel|graphics|gpu)\b", " ", first, flags=re.IGNORECASE), 32)
    count = sum(gpu.name == first for gpu in profile.gpus)
    return f"{count}x-{name}" if count > 1 else name


def _slugged(text: str, limit: int) -> str:
    without_marks = re.sub(r"\((?:r|tm)\)|\b(?:cpu|processor)\b|@.*", " ", text.lower())
    return "-".join(re.findall(r"[a-z0-9]+", without_marks))[:limit].strip("-")


def stored_profiles() -> list[Stored]:
    """This machine's last probe first, then the imported ones by name; broken files with their problem."""
    found = [(OWN, own_path())] if own_path().exists() else []
    if profiles_dir().is_dir():
        found += [(path.stem, path) for path in sorted(profiles_dir().glob("*.json"))]
    return [_read(name, path) for name, path in found]


def _read(name: str, path: Path) -> Stored:
    try:
        return Stored(name, path, read_profile(path))
    except InvalidProfile as error:
        return Stored(name, path, None, error.what if error.found is None else f"{error.what}: {error.found}")


def find_profile(text: str) -> HardwareProfile:
    """The profile that `text` names: a stored name, `this-machine`, a file, or `-` for standard input.

    Raises:
        InvalidOption: when there is none, listing what exists.
        InvalidProfile: when it is not valid.
    """
    if text == "-":
        return read_profile(Path(text))
    if text == OWN and own_path().exists():
        return read_profile(own_path())
    if _NAME.fullmatch(text.lower()) and (profiles_dir() / f"{text.lower()}.json").exists():
        return read_profile(profiles_dir() / f"{text.lower()}.json")
    if _looks_like_file(text):
        return read_profile(Path(os.path.expanduser(text)))
    names = [stored.name for stored in stored_profiles()]
    raise InvalidOption(
        f"no profile is called {one_line(text, 80)!r}",
        found=f"stored: {', '.join(names)}" if names else "no profile is stored",
        needed="a stored profile's name or a JSON file",
        hint="twofold profile list, or: twofold profile import FILE",
    )


def _looks_like_file(text: str) -> bool:
    try:
        exists = Path(os.path.expanduser(text)).exists()
    except (OSError, ValueError, RuntimeError):
        return False
    return exists or "/" in text or "\\" in text or text.endswith(".json")
