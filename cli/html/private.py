"""What a page must not say: where files lie on this machine, and who its user is.

Paths that were typed become their last part; anything else that looks like a path, and names of this user and machine,
become an ellipsis. Strings are cleaned before they are laid out, so that no markup is ever cut.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from twofold.cli.output import UNPRINTABLE

HIDDEN = "…"

_PATH = re.compile(r"""(?<![\w.:/<])(?:~|\.{1,2})?/(?:[^\s/'"]+/)*[^\s/'"]+|[A-Za-z]:\\[^\s'"]+""")
_PASSWORD = re.compile(r"://[^/@\s]+@")


def last_part(path: str) -> str:
    return PureWindowsPath(path).name or Path(path).name or HIDDEN


def looks_like_path(text: str) -> bool:
    """Whether MODEL or a profile was named by where it lies, not by a Hub id or alias."""
    return Path(text).is_absolute() or text.startswith(("~", "./", "../")) or "\\" in text or Path(text).exists()


def path_words(paths: Iterable[str]) -> list[tuple[str, str]]:
    """What to replace by what, the longest first: as typed, as resolved, each quoted for a shell or not."""
    found: dict[str, str] = {}
    for path in paths:
        for text in {path, str(Path(path).expanduser()), str(Path(path).expanduser().resolve())}:
            found[shlex.quote(text)] = shlex.quote(last_part(text))
            found[text] = last_part(text)
    return sorted(found.items(), key=lambda pair: -len(pair[0]))


class Cleaner:
    """Cleans strings; `hidden` says whether a name was replaced, which the reader is told."""

    def __init__(self, paths: Sequence[str], words: Iterable[str]) -> None:
        self._paths = path_words(paths)
        folded = sorted({word.casefold() for word in words if word}, key=len, reverse=True)
        names = "|".join(map(re.escape, folded))
        self._names = re.compile(rf"(?<![^\W_])(?:{names})(?![^\W_])", re.IGNORECASE) if folded else None
        self.hidden = False

    def text(self, text: str) -> str:
        text = UNPRINTABLE.sub("?", text)  # no part of HTML, and halves of surrogate pairs cannot be written at all
        for path, name in self._paths:
            text = text.replace(UNPRINTABLE.sub("?", path), UNPRINTABLE.sub("?", name))
        text = _PASSWORD.sub(f"://{HIDDEN}@", text)
        text = _PATH.sub(lambda match: last_part(match[0]), text)
        if self._names is None or self._names.search(unicodedata.normalize("NFKC", text)) is None:
            return text
        self.hidden = True
        return self._names.sub(HIDDEN, unicodedata.normalize("NFKC", text))

    def clean(self, value: Any) -> Any:
        """All strings in dictionaries, lists and tuples; other values as they are."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(item) for item in value]
        return value
