"""What an import refuses, and that it says where, what was found and what is needed."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.profiles.errors import InvalidProfile
from twofold.profiles.hardware import HardwareProfile
from twofold.profiles.importing import MAX_BYTES, parse_profile, read_profile


def _parse(document: Any) -> HardwareProfile:
    return parse_profile(json.dumps(document).encode(), "the file")


def _refusal(data: bytes) -> InvalidProfile:
    with pytest.raises(InvalidProfile) as refused:
        parse_profile(data, "the file")
    return refused.value


def _set(document: Any, path: str, value: Any) -> None:
    *steps, last = path.replace("[", ".#").replace("]", "").split(".")
    for step in steps:
        document = document[int(step[1:]) if step.startswith("#") else step]
    document[int(last[1:]) if last.startswith("#") else last] = value


def test_a_full_profile_is_read(document: Any) -> None:
    profile = _parse(document)
    assert profile.gpus[1].vram_free_mib.number == 24300
    assert profile.ram.limit_mib.value is None
    assert profile.kernels[0].shape == "21504x5376"


@pytest.mark.parametrize(
    ("path", "value", "needed"),
    [
        ("gpus[0].vram_total_mib.value", -1, "from 0"),
        ("gpus[1].vram_total_mib.value", 1e308, "number from 0 to"),
        ("gpus[0].vram_total_mib.value", 10**30, "20 digits"),
        ("gpus[0].vram_total_mib.value", "24576", "a number"),
        ("gpus[0].vram_total_mib.value", True, "a number"),
        ("gpus[0].vram_total_mib.value", {"a": 1}, "a number, text"),
        ("gpus[0].vram_total_mib.unit", "GB", "MiB"),
        ("gpus[0].vram_total_mib.source", "guessed", "measured"),
        ("gpus[0].vram_total_mib.value", None, "exactly when its source is known"),
        ("gpus[0].vram_total_mib.by", "", "a source"),
        ("gpus[0].display_attached.value", "yes", "true or false"),
        ("gpus[0].name", "x" * 257, "256"),
        ("gpus[0].name", "RTX\x1b[2J", "control"),
        ("gpus[0].name", "RTX \u202e0903", "invisible"),
        ("gpus[0].pcie.generation_max.value", 99, "from 0 to 16"),
        ("gpus[0].power_cap_w.value", -5, "from 0"),
        ("cpu.logical_cores.value", 1e9, "from 1 to 65,536"),
        ("cpu.logical_cores.value", 0, "from 1 to 65,536"),
        ("cpu.physical_cores.value", 0, "from 1"),
        ("cpu.usable_cpus.value", 0, "from 1"),
        ("cpu.quota_cpus.value", 0, "from 0.001"),
        ("cpu.isa_tiers.value", ["avx99"], "one or more of generic"),
        ("cpu.isa_tiers.value", [], "one or more of generic"),
        ("captured_on", "0001-01-01", "1970"),
        ("captured_on", "9999-12-31", "2200"),
        ("ram.read_gb_s_all_cores.value", 0, "from 0.001"),
        ("ram.read_gb_s_one_thread.value", 1e-300, "from 0.001"),
        ("gpus[0].pcie.h2d_gb_s.value", 0, "from 0.001"),
        ("gpus[0].pcie.d2h_gb_s.value", 0, "from 0.001"),
        ("kernels[0].latency_us.value", 0, "from 0.001"),
        ("cpu.model.value", ["a"], "not a list"),
        ("cpu.model.by", "proc\ncpuinfo", "one line"),
        ("cpu.isa_flags.value", "avx2", "a list"),
        ("cpu.isa_flags.value", ["a"] * 1025, "1024"),
        ("cpu.isa_flags.value", ["a" * 65], "64"),
        ("cpu.caches[0].size_bytes", 0, "greater than 0"),
        ("cpu.caches[0].size_bytes", 1.5, "whole number"),
        ("cpu.caches[0].level", "1", "whole number"),
        ("ram.read_gb_s_all_cores.value", -0.1, "from 0"),
        ("cpu.quota_cpus.value", "much", "a number or 'none'"),
        ("ram.total_mib.value", "none", "a number"),
        ("ram.read_gb_s_all_cores.spread", -1, "not negative"),
        ("ram.read_gb_s_all_cores.n", 0, "n between"),
        ("kernels[0].bits", 64, "less than or equal to 16"),
        ("kernels[0].latency_us.value", 1e300, "from 0"),
        ("observed[0].context_tokens", -1, "greater than or equal to 0"),
        ("os.family", "plan9", "linux"),
        ("os.wsl", 1, "true or false"),
        ("captured_on", "yesterday", "date"),
        ("captured_on", "2026-11-02T12:30:45", "date"),
        ("complete", "true", "true or false"),
        ("captured_on", 1700000000, "date"),
        ("gpus", {}, "a list"),
        ("cpu", [], "an object"),
        ("cpu.model", 3, "value, unit, source"),
        ("hostname", "bob", "no such field"),
        ("cpu.serial", "A1", "no such field"),
        ("ram.total_mib.path", "/home", "no such field"),
    ],
)
def test_a_bad_value_is_refused_by_its_path(document: Any, path: str, value: Any, needed: str) -> None:
    _set(document, path, value)
    error = _refusal(json.dumps(document).encode())
    assert needed in f"{error.needed}", error.needed
    parent = path.rpartition(".")[0] if "20 digits" not in needed else ""
    assert parent in error.what
    assert "\x1b" not in f"{error.what}{error.found}{error.needed}"


@pytest.mark.parametrize(
    "path", ["gpus[0].vram_total_mib", "ram", "cpu.model.source", "complete", "gpus[0].pcie.width_max"]
)
def test_a_missing_field_is_named(document: Any, path: str) -> None:
    parent, _, last = path.rpartition(".")
    here = document
    for step in filter(None, parent.replace("[", ".#").replace("]", "").split(".")):
        here = here[int(step[1:]) if step.startswith("#") else step]
    del here[last]
    error = _refusal(json.dumps(document).encode())
    assert path in error.what
    assert error.found == "nothing"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400, "9" * 5000])
@pytest.mark.parametrize("field", ["value", "spread"])
def test_numbers_that_are_none_are_refused(document: Any, text: str, field: str) -> None:
    document["ram"]["read_gb_s_all_cores"][field] = "HERE"
    _refusal(json.dumps(document).replace('"HERE"', text).encode())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\x89PNG\r\n\x1a\n", "not text"),
        (b"\xff\xfe{\x00}\x00", "not text"),
        (b"[1, 2]", "not a profile"),
        (b"null", "not a profile"),
        (b'"text"', "not a profile"),
        (b"{}", "not a profile"),
        (b'{"schema_version": 1}', "is not valid"),
        (b'{"schema_version": 1, "schema_version": 1}', "twice"),
        (b'{"schema_version": 1, "gpus": [{"name": "a", "name": "b"}]}', "twice"),
        (b'{"schema_version": 3}', "not one that this version reads"),
        (b'{"schema_version": "1"}', "not one that this version reads"),
        (b'{"schema_version": true}', "not one that this version reads"),
        (b'{"schema_version": 1.0}', "not one that this version reads"),
        (b'{"schema_version": 1, "gpus": "\\ud800"}', "not text"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b'{"schema_version": 1, "gpus": ' + b"[" * 40 + b"]" * 40 + b"}", "nested too deeply"),
        (b" " * (MAX_BYTES + 1), "too large"),
    ],
)
def test_something_else_is_refused(data: bytes, expected: str) -> None:
    assert expected in _refusal(data).what


@pytest.mark.parametrize(
    ("part", "some", "whole"),
    [("gpus[0]", "vram_free_mib", "vram_total_mib"), ("ram", "available_mib", "total_mib")],
)
def test_more_free_than_there_is_is_refused_by_both_names(document: Any, part: str, some: str, whole: str) -> None:
    total = document["gpus"][0][whole]["value"] if part != "ram" else document["ram"][whole]["value"]
    _set(document, f"{part}.{some}.value", total)
    _parse(document)
    _set(document, f"{part}.{some}.value", total * 4)
    error = _refusal(json.dumps(document).encode())
    assert part in error.what
    assert error.needed is not None and some in error.needed and whole in error.needed


def test_a_bandwidth_that_is_not_known_is_said_to_be_unknown(document: Any) -> None:
    document["ram"]["read_gb_s_all_cores"] = {"value": None, "unit": "GB/s", "source": "unknown", "by": "skipped"}
    assert not _parse(document).ram.read_gb_s_all_cores.is_known


def test_another_schema_version_says_which_is_supported() -> None:
    error = _refusal(b'{"schema_version": 7}')
    assert error.needed == "schema_version 1 or 2"
    assert error.found == "7"
    assert error.hint is not None and "upgrade" in error.hint


def test_a_huge_file_is_refused_from_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)

    def never(*_arguments: Any, **_options: Any) -> Any:
        raise AssertionError("the file was opened")

    monkeypatch.setattr(Path, "open", never)
    with pytest.raises(InvalidProfile, match="too large") as refused:
        read_profile(path)
    assert refused.value.found == "200,000,000 bytes"
    assert refused.value.hint


def test_other_things_than_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidProfile, match="not a profile"):
        read_profile(tmp_path)
    with pytest.raises(InvalidProfile, match="cannot read"):
        read_profile(tmp_path / "missing.json")
    with pytest.raises(InvalidProfile):
        read_profile(Path("a\0b"))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InvalidProfile, match="not a profile"):
            read_profile(tmp_path / "pipe")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=200) | _json.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_refused_with_an_explanation(data: bytes) -> None:
    assert _refusal(data).what


@given(data=st.data())
def test_any_replaced_value_is_refused_or_plausible(data: st.DataObject) -> None:
    """One value anywhere is replaced by any JSON value: the import explains, or every number is finite and bounded."""
    machine = json.loads((Path(__file__).parent / "data" / "machine.json").read_text("utf-8"))
    here, keys = machine, []
    while isinstance(here, dict | list) and here:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        parent, here = here, here[key]
    parent[key] = data.draw(_json)
    try:
        profile = _parse(machine)
    except InvalidProfile as error:
        assert error.what
        return
    for gpu in profile.gpus:
        assert gpu.vram_total_mib.value is None or 0 <= gpu.vram_total_mib.number <= 1 << 26
        assert gpu.pcie.h2d_gb_s.value is None or math.isfinite(gpu.pcie.h2d_gb_s.number)
