"""`twofold doctor`: findings, remedies, exit codes, and no secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import twofold.kernels.cpu as kernels_cpu
from twofold.cli.doctor_checks import (
    check_folder,
    check_hub,
    check_isa,
    check_native,
    check_ram,
    check_torch,
    run_checks,
)
from twofold.kernels.cpu import missing_reason

needs_native = pytest.mark.skipif(missing_reason() is not None, reason="no native module")


def doctor(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TWOFOLD_CPU_ISA"} | changes
    command = [sys.executable, "-m", "twofold", "doctor", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@needs_native
def test_a_sound_machine_exits_with_zero_and_lists_settings() -> None:
    result = doctor("--format", "json")
    document = json.loads(result.stdout)
    assert result.returncode == 0, document
    assert document["schema_version"] == 1
    assert document["ok"] is True
    names = [check["name"] for check in document["checks"]]
    for name in ("native module", "instruction set", "torch", "memory", "processor", "graphics card", "cache folder"):
        assert name in names
    for check in document["checks"]:
        assert check["status"] in ("ok", "warn", "fail")
        assert (check["remedy"] is None) == (check["status"] == "ok")
    home = {row["name"]: row for row in document["settings"]}["TWOFOLD_HOME"]
    assert home["origin"] == "environment"


@needs_native
def test_a_failing_check_exits_with_one_and_says_what_to_do() -> None:
    result = doctor(TWOFOLD_CPU_ISA="nonsense")
    assert result.returncode == 1
    assert "fail  instruction set" in result.stdout
    assert "hint: unset TWOFOLD_CPU_ISA" in result.stdout
    assert "Traceback" not in result.stderr


def test_a_broken_settings_file_is_a_finding(isolated_home: Path) -> None:
    (isolated_home / "config").mkdir(exist_ok=True)
    (isolated_home / "config" / "config.toml").write_text("ctx = [")
    result = doctor("--format", "json")
    assert result.returncode == 1
    failed = [check for check in json.loads(result.stdout)["checks"] if check["status"] == "fail"]
    assert [check["name"] for check in failed] == ["settings"]


def test_stray_variables_are_named() -> None:
    document = json.loads(doctor("--format", "json", TWOFOLD_CTXX="8192").stdout)
    (settings,) = (check for check in document["checks"] if check["name"] == "settings")
    assert settings["status"] == "warn"
    assert "TWOFOLD_CTXX" in settings["found"]


def test_secrets_are_named_and_never_shown() -> None:
    secret, proxy = "hf_abcdefSECRET", "http://user:password@proxy:8080"
    for form in ("human", "json"):
        result = doctor("--format", form, HF_TOKEN=secret, HTTPS_PROXY=proxy)
        assert "HF_TOKEN" in result.stdout
        assert "HTTPS_PROXY" in result.stdout
        assert secret not in result.stdout + result.stderr
        assert "password" not in result.stdout + result.stderr


def test_offline_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    check = check_hub()
    assert check.status == "warn"
    assert check.remedy is not None and "HF_HUB_OFFLINE" in check.remedy
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert check_hub().status == "ok"


def test_a_saved_token_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert "saved token" not in check_hub().found
    (tmp_path / "token").write_text("hf_secret")
    assert "saved token" in check_hub().found
    assert "hf_secret" not in check_hub().found


def test_folders(tmp_path: Path) -> None:
    assert check_folder("x", tmp_path / "not" / "yet" / "there").found.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == [], "a check creates nothing"
    (tmp_path / "file").write_text("")
    broken = check_folder("x", tmp_path / "file" / "below")
    assert broken.status == "fail"
    assert broken.remedy is not None and "TWOFOLD_HOME" in broken.remedy


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert check_folder("x", tmp_path / "y").status == "fail"


def test_without_the_native_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_cpu, "_module", None)
    monkeypatch.setattr(kernels_cpu, "_reason", "undefined symbol: example")
    check = check_native()
    assert check.status == ("fail" if sys.platform.startswith("linux") else "warn")
    assert "undefined symbol: example" in check.found
    assert check.remedy is not None and "pip install" in check.remedy
    assert check_isa().status == "warn"


def test_torch_is_looked_up_and_not_loaded() -> None:
    script = "import sys; from twofold.cli.doctor_checks import run_checks; run_checks(); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
    assert check_torch().status in ("ok", "warn")


def test_every_problem_has_a_remedy() -> None:
    for check in run_checks():
        assert (check.remedy is None) == (check.status == "ok"), check
    assert "MiB" in check_ram().found


def test_raw_is_one_json_document_without_names() -> None:
    result = doctor("--raw")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert set(document) == {"schema_version", "files", "nvml"}
    if sys.platform.startswith("linux"):
        assert "proc/meminfo" in document["files"]
    assert "UUID" not in result.stdout.upper()


@needs_native
def test_more_threads_than_can_run_are_listed() -> None:
    def threads(**changes: str) -> dict[str, str | None]:
        checks = json.loads(doctor("--format", "json", **changes).stdout)["checks"]
        return next(check for check in checks if check["name"] == "threads")  # type: ignore[no-any-return]

    usual = threads()
    assert usual["status"] == "ok" and "pinned" in str(usual["found"]) and "usable core" in str(usual["found"])
    found = threads(TWOFOLD_THREADS="999")
    assert found["status"] == "warn" and "999 threads take turns" in str(found["found"])
    assert found["remedy"] == "unset TWOFOLD_THREADS"
    assert threads(TWOFOLD_THREADS="1")["status"] == "ok"
    assert "by TWOFOLD_PIN=0" in str(threads(TWOFOLD_PIN="0")["found"])
