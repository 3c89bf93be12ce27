"""Reading a profile that somebody else wrote: everything is checked and nothing is trusted.

The order matters: size before reading, encoding before parsing, and duplicate keys, NaN and depth refused before the
schema sees anything. An error names the field by its JSON path, what was found there and what is needed.
"""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from twofold.profiles.errors import InvalidProfile
from twofold.profiles.hardware import SCHEMA_VERSIONS, HardwareProfile
from twofold.profiles.text import one_line

MAX_BYTES = 1 << 20
"""Largest profile file. With a few hundred timed kernels a profile stays under 200 KiB."""

MAX_DEPTH = 16
"""Deepest nesting. The schema needs six levels."""

HINT = "make a profile with: twofold profile export my.json"

_SCALAR_NEEDS = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "finite_number": "a finite number",
    "extra_forbidden": "no such field: the schema is closed",
    "unexpected_keyword_argument": "no such field: the schema is closed",
    "missing": "this field",
    "tuple_type": "a list",
    "model_type": "an object",
    "dataclass_type": "an object: value, unit, source, by",
}


class _Refused(ValueError):
    """Raised by the JSON hooks with what was found and needed."""

    def __init__(self, what: str, found: str, needed: str) -> None:
        super().__init__(what)
        self.what, self.found, self.needed = what, found, needed


def read_profile(path: Path) -> HardwareProfile:
    """The profile in the file `path`, or on standard input for `-`.

    Raises:
        InvalidProfile: when it is too large, not a plain file, not JSON or not a profile of this schema.
    """
    if str(path) == "-":
        return parse_profile(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    shown = one_line(str(path))
    try:
        facts = path.stat()
    except (OSError, ValueError) as error:
        raise InvalidProfile(f"cannot read {shown}", found=_reason(error), hint="twofold profile list") from error
    if not stat.S_ISREG(facts.st_mode):
        found = "a folder" if stat.S_ISDIR(facts.st_mode) else "a device, pipe or socket"
        raise InvalidProfile(f"{shown} is not a profile", found=found, needed="a JSON file", hint=HINT)
    if facts.st_size > MAX_BYTES:
        _too_large(shown, f"{facts.st_size:,} bytes")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidProfile(f"cannot read {shown}", found=_reason(error), hint=HINT) from error
    return parse_profile(data, shown)


def parse_profile(data: bytes, where: str) -> HardwareProfile:
    """The profile in `data`; `where` names its origin in errors.

    Raises:
        InvalidProfile: as `read_profile`.
    """
    if len(data) > MAX_BYTES:
        _too_large(where, f"more than {MAX_BYTES:,} bytes")
    document = _parse_json(data, where)
    _check_version(document, where)
    try:
        return HardwareProfile.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise _explain(error, document, where) from error


def _too_large(where: str, found: str) -> NoReturn:
    needed = f"at most {MAX_BYTES:,} bytes"
    raise InvalidProfile(f"{where} is too large for a profile", found=found, needed=needed, hint=HINT)


def _parse_json(data: bytes, where: str) -> Any:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidProfile(
            f"{where} is not text", found=f"no UTF-8 at byte {error.start}", needed="UTF-8 JSON", hint=HINT
        ) from error
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)
        _check_values(document, "$", 0)
    except _Refused as error:
        raise InvalidProfile(f"{where}: {error.what}", found=error.found, needed=error.needed, hint=HINT) from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise InvalidProfile(f"{where} is not JSON", found=place, needed="one JSON object", hint=HINT) from error
    except RecursionError as error:
        raise InvalidProfile(
            f"{where} is nested too deeply", needed=f"at most {MAX_DEPTH} levels", hint=HINT
        ) from error
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Refused("a key appears twice in one object", repr(one_line(key, 64)), "each key once")
        found[key] = value
    return found


def _constant(name: str) -> NoReturn:
    raise _Refused("a number is not finite", name, "finite numbers")


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise _Refused("a number is too long", f"{len(digits)} digits", "at most 20 digits")
    return int(digits)


def _check_values(value: Any, path: str, depth: int) -> None:
    """Depth, infinity (`1e999`) and lone surrogates, which JSON's grammar allows."""
    if depth > MAX_DEPTH:
        raise _Refused("nested too deeply", f"more than {MAX_DEPTH} levels", f"at most {MAX_DEPTH} levels")
    if isinstance(value, float) and (value - value) != 0.0:
        raise _Refused(f"{path} is not finite", "an infinite number", "finite numbers")
    if isinstance(value, str) and not _is_encodable(value):
        raise _Refused(f"{path} is not text", "half of a surrogate pair", "Unicode text")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_values(key, path, depth + 1)
            _check_values(item, f"{path}.{one_line(key, 64)}" if path != "$" else one_line(key, 64), depth + 1)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_values(item, f"{path}[{i}]", depth + 1)


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_version(document: Any, where: str) -> None:
    if not isinstance(document, dict):
        raise InvalidProfile(
            f"{where} is not a profile", found=f"JSON {_kind(document)}", needed="a JSON object", hint=HINT
        )
    supported = f"schema_version {' or '.join(map(str, SCHEMA_VERSIONS))}"
    if "schema_version" not in document:
        raise InvalidProfile(f"{where} is not a profile", found="no field schema_version", needed=supported, hint=HINT)
    version = document["schema_version"]
    if type(version) is not int or version not in SCHEMA_VERSIONS:
        newer = isinstance(version, int) and version > max(SCHEMA_VERSIONS)
        raise InvalidProfile(
            f"{where}: schema_version is not one that this version reads",
            found=_shown(version),
            needed=supported,
            hint="pip install --upgrade twofold" if newer else HINT,
        )


def _explain(error: ValidationError, document: Any, where: str) -> InvalidProfile:
    """The first problem, by the JSON path of the field."""
    problems = error.errors(include_url=False)
    path, value = _locate(document, problems[0]["loc"], problems[0]["type"])
    same = [problem for problem in problems if _locate(document, problem["loc"], problem["type"])[0] == path]
    more = len({_locate(document, problem["loc"], problem["type"])[0] for problem in problems}) - 1
    needed = "true or false, a number, text, a list of texts, or null" if len(same) > 1 else _needed(same[0])
    rest = f" (and {more} more)" if more else ""
    found = "nothing" if problems[0]["type"] == "missing" else _shown(value)
    return InvalidProfile(f"{where}: {path or 'the profile'} is not valid{rest}", found=found, needed=needed, hint=HINT)


def _locate(document: Any, location: tuple[int | str, ...], kind: str) -> tuple[str, Any]:
    """The part of `location` that exists in the document, as a JSON path, and the value there.

    Pydantic adds the names of union members to a location; those are no fields.
    """
    path, here = "", document
    for i, step in enumerate(location):
        if isinstance(here, dict) and step in here:
            here = here[step]
            path += f".{one_line(str(step), 64)}" if path else one_line(str(step), 64)
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
            path += f"[{step}]"
        else:
            if kind == "missing" and i == len(location) - 1:
                path += f".{step}" if path else str(step)
            break
    return path, here


def _needed(problem: Any) -> str:
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    return _SCALAR_NEEDS.get(problem["type"], one_line(problem["msg"], 160))


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return _kind(value) if len(json.dumps(value)) > 80 else one_line(json.dumps(value), 80)
    return one_line(json.dumps(value, ensure_ascii=False), 80)


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", type(None): "null"}.get(type(value), "a number or flag")


def _reason(error: Exception) -> str:
    return one_line(error.strerror or str(error)) if isinstance(error, OSError) else one_line(str(error))
