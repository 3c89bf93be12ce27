"""The last look at a document before it leaves the machine: every string is searched for what could identify somebody.

The schema has no field for such things; this catches values that slipped into an allowed one. A finding refuses the
export, since a value that was cut out silently could be half left. Patterns err on the side of refusing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from twofold.profiles.errors import UnsafeToShare
from twofold.profiles.identity import parts_of
from twofold.profiles.name_search import Names, names_of
from twofold.profiles.text import one_line

_HEX = "[0-9a-fA-F]"
_EDGE = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a UUID", re.compile(rf"{_HEX}{{8}}[-_]?{_HEX}{{4}}[-_]?{_HEX}{{4}}[-_]?{_HEX}{{4}}[-_]?{_HEX}{{12}}")),
    ("an e-mail address", re.compile(r"[^\s@]@[^\s@]")),
    ("a PCI bus id", re.compile(rf"{_EDGE}(?:{_HEX}{{4,8}}:)?{_HEX}{{2}}:{_HEX}{{2}}\.[0-7]{_END}")),
    ("a MAC address", re.compile(rf"{_EDGE}{_HEX}{{2}}(?:[:-]{_HEX}{{2}}){{5}}{_END}")),
    ("a MAC address", re.compile(rf"{_EDGE}{_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}{_END}")),
    (
        "an IP address",
        re.compile(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.]?\d)"),
    ),
    ("an IP address or a time", re.compile(rf"(?<![0-9A-Za-z:])(?:{_HEX}{{1,4}}:){{2,7}}{_HEX}{{1,4}}(?![0-9A-Za-z])")),
    ("a time", re.compile(r"\d:[0-5]\d:[0-5]\d")),
    ("an IP address", re.compile(rf"{_HEX}{{0,4}}::(?:{_HEX}{{1,4}})?")),
    ("a path", re.compile(r"""(?:^|[^\w./])/(?=[\w.~$@%+{-])""")),
    ("a path", re.compile(r"/(?:home|Users|root|mnt|media|Volumes)(?:/|\b)", re.IGNORECASE)),
    ("a path", re.compile(r"(?:^|[^\w])~[\w.-]*[/\\]|file:|\$\{?HOME|%USERPROFILE%", re.IGNORECASE)),
    ("a path", re.compile(r"(?:^|[^A-Za-z0-9])[A-Za-z]:[\\/]|\\")),
    ("a path", re.compile(r"(?:^|[^\w.])\.{1,2}/")),
    ("a web address", re.compile(r"\w://")),
    ("a telephone number", re.compile(r"(?<![\d.])\+\d(?:[\s()./_-]{0,2}\d){6,}")),
    ("a telephone number", re.compile(r"(?<![A-Za-z0-9.])\(?0\d{1,5}\)?[\s/_-]\d(?:[\s/_-]?\d){4,}(?![\d.])")),
    ("a telephone number", re.compile(r"(?<![A-Za-z0-9.])\(?\d{3}\)?[\s_-]{1,2}\d{3}[\s_-]\d{4}(?!\d)")),
    ("a serial number", re.compile(r"(?:\bserial(?: ?(?:no|number|num))?|\bs/n)\b[\s.:=#]*[a-z]*\d", re.IGNORECASE)),
)

# Long runs of letters and digits that hardware really has: shapes of products, instruction set extensions.
_SHAPE = re.compile(r"\d{1,7}(?:x\d{1,7})+")
_ISA_NAME = re.compile(r"avx[a-z0-9_]{1,24}|avx512[a-z0-9_]{0,16}")
_RUN = re.compile(r"[A-Za-z0-9]{9,}")
_ATTENTION_SHAPE = re.compile(r"\d{1,6}/\d{1,6}x\d{1,6}\+\d{1,6}@\d{1,8}", re.ASCII)  # of a timed kernel, whole
_MODEL_AT_REVISION = re.compile(r"([\w.-]+/[\w.-]+)@(?:main|v?\d[\w.]{0,11}|[0-9a-f]{7,12}|[0-9a-f]{40})")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that may identify a person or machine: where (JSON path), what kind, and the text."""

    path: str
    kind: str
    text: str


def scan(document: Any, words: Iterable[str] = (), allowed: Iterable[str] = ()) -> list[Finding]:
    """All findings in every string value of `document` (its keys are the schema's).

    `words` are names to look for (see `twofold.profiles.identity.personal_words`), matched as `name_search` says.
    `allowed` are names that the user declares harmless; they excuse no pattern.
    """
    names = names_of(words, (part for word in allowed for part in (word, *parts_of(word))))
    return [Finding(path, kind, text) for path, text in _strings(document, "") for kind in _kinds(text, names)]


def refuse_personal(document: Any, words: Iterable[str], allowed: Iterable[str] = ()) -> None:
    """Stop unless `document` is free of findings.

    Raises:
        UnsafeToShare: naming the first field and what was found there.
    """
    findings = scan(document, words, allowed)
    if not findings:
        return
    first = findings[0]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    hint = "report this with the field's name: the probe should not have put it there"
    if first.kind == "a user or host name":
        hint = "if the word is no name here, pass: --allow-word WORD"
    raise UnsafeToShare(
        f"the profile must not be shared: {first.path} holds {first.kind}{more}",
        found=one_line(first.text, 120),
        needed="no names, paths, addresses, serial numbers or UUIDs",
        hint=hint,
    )


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path or "the document", value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _strings(item, f"{path}[{i}]")


def _kinds(text: str, names: Names) -> list[str]:
    plain = unicodedata.normalize("NFKC", text)
    if _ATTENTION_SHAPE.fullmatch(text):  # small numbers, which only the pattern of addresses takes for more
        plain = text.replace("@", ",")
    found = []
    if names.are_in(text):
        found.append("a user or host name")
    matched = _MODEL_AT_REVISION.fullmatch(plain)
    searched = matched.group(1) if matched else plain
    found += [kind for kind, pattern in _PATTERNS if pattern.search(searched)]
    if any(_is_serial(run) for run in _RUN.findall(searched)):
        found.append("a serial number or identifier")
    return list(dict.fromkeys(found))


def _is_serial(run: str) -> bool:
    """A long run that mixes digits and letters like an identifier, or is a long number."""
    if _SHAPE.fullmatch(run) or _ISA_NAME.fullmatch(run):
        return False
    digits = sum(char.isdigit() for char in run)
    if digits == len(run):
        return True
    return len(run) >= 10 and digits >= 3
