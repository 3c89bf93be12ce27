"""The bytes that are shared: canonical, importable, and only what the schema has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twofold.profiles.errors import InvalidProfile, UnsafeToShare
from twofold.profiles.export import document_of, export_bytes, summary
from twofold.profiles.hardware import HardwareProfile
from twofold.profiles.importing import parse_profile


def _profile(document: Any) -> HardwareProfile:
    return HardwareProfile.model_validate_json(json.dumps(document))


def test_the_bytes_are_canonical_and_come_back_equal(document: Any) -> None:
    profile = _profile(document)
    data = export_bytes(profile, words=())
    assert data == (Path(__file__).parent / "data" / "machine.json").read_bytes()
    assert parse_profile(data, "the export") == profile


def test_unknown_figures_keep_their_null(document: Any) -> None:
    written = document_of(_profile(document))
    assert written["ram"]["limit_mib"] == {
        "value": None, "unit": "MiB", "source": "unknown", "by": "no control group limits the memory"
    }  # fmt: skip


def test_kernel_files_are_named_in_words(document: Any) -> None:
    document["cpu"]["model"]["by"] = "/proc/cpuinfo, CPU implementer"
    document["ram"]["total_mib"]["by"] = "no MemTotal in /proc/meminfo"
    data = export_bytes(_profile(document), words=())
    assert b"procfs cpuinfo, CPU implementer" in data
    assert b"in procfs meminfo" in data
    assert b"/proc" not in data


@pytest.mark.parametrize("text", ["/proc/cpuinfo/jane", "/proc/1234/cpuinfo", "/sys/fs/cgroup/user-1000", "/home/x"])
def test_other_paths_are_refused(document: Any, text: str) -> None:
    document["cpu"]["model"]["by"] = text
    with pytest.raises(UnsafeToShare):
        export_bytes(_profile(document), words=())


def test_this_users_name_is_refused_unless_allowed(document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "janedoe")
    document["observed"][0]["model"] = "janedoe/my-model"
    profile = _profile(document)
    with pytest.raises(UnsafeToShare) as refused:
        export_bytes(profile)
    assert "observed[0].model" in refused.value.what
    assert b"janedoe" in export_bytes(profile, allowed=["janedoe"])


def test_a_field_outside_the_schema_never_leaves(document: Any) -> None:
    smuggled = _profile(document).model_copy(update={"hostname": "box"})
    try:
        data = export_bytes(smuggled, words=())
    except InvalidProfile:
        return
    assert b"hostname" not in data


def test_the_summary_counts(document: Any) -> None:
    text = summary(_profile(document))
    assert "2 graphics cards" in text
    assert "1 kernel timing," in text
    assert "1 observed run," in text
    assert text.startswith("tells of: processor, memory, 2 graphics cards, system family")
    document["gpus"].pop()
    assert "1 graphics card," in summary(_profile(document))
