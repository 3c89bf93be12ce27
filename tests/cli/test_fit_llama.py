"""`twofold fit --engine llama.cpp` and the import of reported runs, from the outside."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.profiles.observations import shipped_observations

QWEN = ("fit", "Qwen/Qwen3.8-27B", "--engine", "llama.cpp", "--card", "RTX 5090", "--ctx", "128K", "--kv", "q4_0")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_HOME", str(tmp_path / "home"))


def run(*arguments: str) -> int:
    return run_app(lambda: build_app()(list(arguments)))


def test_the_peak_of_an_observed_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QWEN, "--weights-name", "Qwen3.8-27B Q6_K", "--draft-mtp", "2", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory"]["vram"]["total_mib"]["value"] == pytest.approx(25797, abs=1)
    assert found["calibration"]["observation"] == "A17"
    assert found["speed"]["decode_tok_s"] == {"value": 130.0, "unit": "tok/s", "source": "reported"} | {
        "by": found["speed"]["decode_tok_s"]["by"]
    }


def test_the_human_answer_names_the_observation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QWEN, "--weights-name", "Qwen3.8-27B Q6_K", "--explain") == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("FITS: Qwen3.8-27B Q6_K (Qwen/Qwen3.8-27B) with llama.cpp")
    assert "calibrated by reported peak A16" in captured.err
    assert "llama-server" in captured.out


def test_the_model_may_be_left_out_where_its_files_name_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    asked = (QWEN[0], *QWEN[2:], "--weights-name", "Qwen3.8-27B Q6_K", "--format", "json")
    assert run(*asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["weights_name"]) == ("Qwen/Qwen3.8-27B", "Qwen3.8-27B Q6_K")
    assert found["calibration"]["observation"] == "A16"


def test_a_file_of_another_size_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("fit", "Qwen/Qwen3-8B", "--card", "4090", "--engine", "llama.cpp", "--weights-name", "Qwen3.8-27B Q6_K")
    assert run(*asked) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "27B in 'Qwen3.8-27B Q6_K'" in captured.err
    assert "leave out MODEL" in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        (*QWEN, "--weights-name", "no such file"),
        (QWEN[0], *QWEN[2:], "--weights-name", "no such file Q4_K_M"),
        (*QWEN, "--weights-mib", "nan"),
        (*QWEN, "--weights-mib", "16000", "--slots", "0"),
        (*QWEN, "--weights-mib", "16000", "--draft-mtp", "1.5"),
        ("fit", "Qwen/Qwen3.8-27B", "--engine", "vllm"),
        ("fit", "Qwen/Qwen3.8-27B", "--draft-mtp", "2"),
        ("fit", "--engine", "llama.cpp", "--card", "RTX 5090"),
        (
            "fit",
            "Qwen/Qwen3.8-27B",
            "--engine",
            "llama.cpp",
            "--weights-mib",
            "9",
            "--card",
            "RTX 5090",
            "--kv",
            "q5_1",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == 2
    assert "error:" in capsys.readouterr().err


def test_imported_runs_calibrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = replace(shipped_observations()[0], id="mine", model="my file", measured_mib=20000)
    path = tmp_path / "peaks.jsonl"
    path.write_text(json.dumps(asdict(mine)) + "\n", "utf-8")
    assert run("profile", "import", str(path)) == 0
    assert run(*QWEN, "--weights-name", "My File", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory"]["vram"]["total_mib"]["value"] == pytest.approx(20000, abs=0.01)
    assert run("profile", "import", str(path), "--name", "x") == 2
    path.write_text("{}\n", "utf-8")
    assert run("profile", "import", str(path)) == 1
