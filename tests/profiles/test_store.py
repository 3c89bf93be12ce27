"""Where profiles are kept, how they are found, and that nothing is overwritten."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from twofold.profiles.errors import InvalidOption, InvalidProfile
from twofold.profiles.hardware import HardwareProfile
from twofold.profiles.importing import read_profile
from twofold.profiles.store import (
    OWN,
    find_profile,
    load_own,
    own_path,
    profiles_dir,
    save_imported,
    save_own,
    slug,
    stored_profiles,
)


def _profile(document: Any) -> HardwareProfile:
    return HardwareProfile.model_validate_json(json.dumps(document))


def test_the_own_profile_comes_back(document: Any) -> None:
    assert load_own() is None
    path = save_own(_profile(document))
    assert path == own_path()
    assert load_own() == _profile(document)
    assert find_profile(OWN) == _profile(document)


def test_a_damaged_own_profile_says_how_to_renew_it(document: Any) -> None:
    save_own(_profile(document))
    own_path().write_bytes(own_path().read_bytes()[:100])
    with pytest.raises(InvalidProfile) as refused:
        load_own()
    assert refused.value.hint == "twofold probe"


def test_the_same_content_is_stored_once_and_another_beside_it(document: Any) -> None:
    first = save_imported(_profile(document))
    again = save_imported(_profile(document))
    document["ram"]["available_mib"]["value"] = 1000
    other = save_imported(_profile(document))
    assert first.name == again.name == "2x-rtx-3090-63g"
    assert other.name == "2x-rtx-3090-63g-2"
    assert sorted(path.name for path in profiles_dir().iterdir()) == ["2x-rtx-3090-63g-2.json", "2x-rtx-3090-63g.json"]
    assert read_profile(first.path).ram.available_mib.value == 60000


def test_a_given_name_is_kept_or_refused(document: Any) -> None:
    stored = save_imported(_profile(document), "big-box")
    assert stored.path == profiles_dir() / "big-box.json"
    assert save_imported(_profile(document), "big-box").path == stored.path
    document["complete"] = False
    with pytest.raises(InvalidOption, match="different profile"):
        save_imported(_profile(document), "big-box")
    assert read_profile(stored.path).complete


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "a/b", "a\\b", OWN, "A", "x" * 65, "a b", ".hidden", "x.json", "a\n"]
)
def test_a_name_that_could_escape_the_folder_is_refused(document: Any, name: str) -> None:
    with pytest.raises(InvalidOption):
        save_imported(_profile(document), name)
    assert not profiles_dir().exists()


def test_finding_by_name_file_and_not_at_all(document: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_imported(_profile(document), "big-box")
    Path("mine.json").write_text(json.dumps(document))
    assert find_profile("big-box") == find_profile("BIG-BOX") == find_profile("mine.json") == _profile(document)
    with pytest.raises(InvalidOption) as refused:
        find_profile("small-box")
    assert refused.value.found is not None and "big-box" in refused.value.found
    with pytest.raises(InvalidProfile, match="cannot read"):
        find_profile("nowhere/x.json")
    with pytest.raises(InvalidOption):
        find_profile("\x1b[31m\0")


def test_a_broken_file_is_listed_with_its_problem(document: Any) -> None:
    save_own(_profile(document))
    save_imported(_profile(document), "good")
    (profiles_dir() / "bad.json").write_text("{")
    listed = {stored.name: stored for stored in stored_profiles()}
    assert list(listed) == [OWN, "bad", "good"]
    assert listed["bad"].profile is None and "not JSON" in (listed["bad"].problem or "")
    assert listed["good"].profile is not None


@pytest.mark.parametrize(
    ("gpus", "cpu", "expected"),
    [
        ([], "Intel(R) Xeon(R) CPU E5-2670 v3 @ 2.30GHz", "intel-xeon-e5-2670-v3-63g"),
        ([], "日本", "machine-63g"),
        (["NVIDIA RTX A4000"], "x", "rtx-a4000-63g"),
        (["../../etc/passwd"], "x", "etc-passwd-63g"),
    ],
)
def test_names_made_from_a_machine_are_safe(document: Any, gpus: list[str], cpu: str, expected: str) -> None:
    document["gpus"] = [dict(document["gpus"][0], name=name) for name in gpus]
    document["cpu"]["model"]["value"] = cpu
    assert slug(_profile(document)) == expected


def test_imports_at_the_same_time_lose_nothing(document: Any) -> None:
    profiles = []
    for free_mib in range(1000, 1012):
        document["ram"]["available_mib"]["value"] = free_mib
        profiles.append(_profile(document))
    with ThreadPoolExecutor(4) as pool:
        stored = list(pool.map(save_imported, profiles))
    assert len({one.path for one in stored}) == len(profiles)
    assert [read_profile(one.path) for one in stored] == profiles
