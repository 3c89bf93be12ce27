"""`twofold probe` and `--version` as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from twofold.kernels.cpu import missing_reason
from twofold.profiles.importing import parse_profile, read_profile


def twofold(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TWOFOLD_CPU_ISA"} | changes
    command = [sys.executable, "-m", "twofold", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_table_says_where_every_value_comes_from() -> None:
    result = twofold("probe", "--no-bandwidth")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["fact", "value", "source", "by"]
    sources = {"measured", "reported", "reasoned", "unknown"}
    rows = [line for line in lines[2:] if line.strip()]
    assert len(rows) > 15
    for row in rows:
        assert sources & set(row.split()), row


def test_json_is_a_profile_and_nothing_else() -> None:
    result = twofold("probe", "--no-bandwidth", "--format", "json")
    assert result.returncode == 0, result.stderr
    profile = parse_profile(result.stdout.encode(), "stdout")
    assert not profile.complete
    assert profile.ram.read_gb_s_all_cores.value is None


def test_measured_probe_is_written_and_kept(tmp_path: Path, isolated_home: Path) -> None:
    target = tmp_path / "deep" / "machine.json"
    result = twofold("probe", "-o", str(target), "--format", "json")
    assert result.returncode == 0, result.stderr
    assert "written:" in result.stderr
    written = read_profile(target)
    assert json.loads(target.read_text()) == json.loads(result.stdout)
    if missing_reason() is None and written.ram.read_gb_s_all_cores.is_known:
        assert written.ram.read_gb_s_all_cores.source == "measured"
    kept = list(isolated_home.rglob("machine.json"))
    assert [read_profile(path) for path in kept] == [written]


def test_unwritable_output_is_a_plain_error(tmp_path: Path) -> None:
    result = twofold("probe", "--no-bandwidth", "-o", str(tmp_path))
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "error:" in result.stderr


def test_unknown_format_is_usage() -> None:
    assert twofold("probe", "--format", "yaml").returncode == 2


def test_help_and_import_stay_light() -> None:
    heavy = "{'numpy', 'torch', 'pydantic'}"
    script = f"import sys, twofold.cli.probe, twofold.cli.doctor; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.skipif(missing_reason() is not None, reason="no native module")
def test_version_names_commit_and_tier() -> None:
    result = twofold("--version", TWOFOLD_CPU_ISA="generic")
    assert result.returncode == 0
    words = result.stdout.split()
    assert words[0] == "twofold"
    assert words[2] == "(commit"
    assert words[-2:] == ["kernels:", "generic)"]
    broken = twofold("--version", TWOFOLD_CPU_ISA="nonsense")
    assert broken.returncode == 0
    assert "TWOFOLD_CPU_ISA=nonsense" in broken.stdout
