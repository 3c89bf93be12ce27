"""Reading the kernel's text files under a root folder, so that a recorded tree can stand in for a machine.

Every reader takes the root (`/` on a live machine) and a path relative to it. A file that is missing or may not be read
is None: what follows from its absence is the caller's to say.
"""

from __future__ import annotations

from pathlib import Path

SYSTEM_ROOT = Path("/")
_MAX_BYTES = 4 << 20
_MAX_CPUS = 65536


def read_text(root: Path, path: str) -> str | None:
    """The text of `root`/`path`, stripped; None where it is missing, unreadable or not a file."""
    try:
        with (root / path.lstrip("/")).open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


def read_int(root: Path, path: str) -> int | None:
    """The integer in `root`/`path`, or None where there is no file or no integer in it."""
    text = read_text(root, path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def names(root: Path, folder: str) -> list[str]:
    """The sorted names in `root`/`folder`; empty where it is no readable folder."""
    try:
        return sorted(entry.name for entry in (root / folder.lstrip("/")).iterdir())
    except OSError:
        return []


def fields(text: str, separator: str = ":") -> dict[str, str]:
    """`key: value` lines as a mapping; the first of a repeated key counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, mark, value = line.partition(separator)
        if mark:
            found.setdefault(key.strip(), value.strip())
    return found


def cpu_list(text: str | None) -> list[int]:
    """CPU numbers of a kernel list such as `0-3,8,10-11`; empty for an empty or malformed one."""
    numbers: set[int] = set()
    for part in (text or "").replace("\n", ",").split(","):
        first, _, last = part.strip().partition("-")
        if not first:
            continue
        try:
            low, high = int(first), int(last or first)
        except ValueError:
            return []
        if low < 0 or high < low or high > _MAX_CPUS:
            return []
        numbers.update(range(low, high + 1))
    return sorted(numbers)
