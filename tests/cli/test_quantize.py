"""`twofold quantize`: the sheet, the folder, refusals, exit codes, one JSON document."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.engine.quantize.options import QuantizeOptions
from twofold.engine.quantize.workspace import left_by


def twofold(*arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TWOFOLD_DEBUG": "", **changes}
    command = [sys.executable, "-m", "twofold", "quantize", *map(str, arguments)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL
    )


def _no_traceback(result: subprocess.CompletedProcess[str]) -> None:
    assert "Traceback" not in result.stderr, result.stderr


@pytest.mark.slow
def test_from_folder_to_checkpoint_and_again(quantizable_folder: Path, isolated_home: Path) -> None:
    short = ("--calibration", "shipped", "--calibration-tokens", "400")
    first = twofold(quantizable_folder, *short, "--yes")
    assert first.returncode == 0, first.stderr
    folder = Path(first.stdout.strip())
    assert folder.is_relative_to(isolated_home)
    assert (folder / "config.json").is_file()
    assert "peak memory" in first.stderr
    assert "another model wrote" in first.stderr
    before = (folder / "config.json").stat().st_mtime_ns
    second = twofold(quantizable_folder, *short, "--yes", "--format", "json")
    assert second.returncode == 0
    assert json.loads(second.stdout)["folder"] == str(folder)
    assert json.loads(second.stdout)["time"]["source"] == "unknown"
    assert "its calibration text" not in second.stderr
    (folder.parent / "mine.txt").write_text("words " * 600)
    third = twofold(quantizable_folder, "--calibration", folder.parent / "mine.txt", "--yes")
    assert third.returncode == 0
    assert "its calibration text was shipped:" in third.stderr and "not file:mine.txt" in third.stderr
    assert "hint: --force" in third.stderr
    refined = twofold(quantizable_folder, *short, "--refine", "2", "--yes")
    assert refined.returncode == 0
    assert "its draft was not refined; nothing was done" in refined.stderr and "hint: --force" in refined.stderr
    assert (folder / "config.json").stat().st_mtime_ns == before


def test_an_unusable_text_is_refused_before_the_question(quantizable_folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "bad.jsonl"
    text.write_text('{"a": 1}\n')
    result = twofold(quantizable_folder, "-o", tmp_path / "ckpt", "--calibration", text)
    assert result.returncode == 1, result.stderr
    assert "line 1 has no usable text" in result.stderr and "hint:" in result.stderr
    assert "peak memory" not in result.stderr and "not confirmed" not in result.stderr


def test_dry_run_prints_the_sheet_and_makes_nothing(quantizable_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "ckpt"
    result = twofold(quantizable_folder, "-o", out, "--dry-run", "--format", "json", "--residual-bits", "7")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema_version"] == 1
    for key in ("download", "result", "work_files", "disk_needed", "peak_ram", "time"):
        assert document["cost"][key]["source"] in ("measured", "reported", "reasoned", "unknown")
    assert document["cost"]["calibration"]["kind"] == "self"
    refined = twofold(quantizable_folder, "-o", out, "--dry-run", "--refine", "9", COLUMNS="400")
    assert refined.returncode == 0, refined.stderr
    assert "9 passes of training" in " ".join(refined.stdout.split())
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_it_asks_for_yes(quantizable_folder: Path, tmp_path: Path) -> None:
    result = twofold(quantizable_folder, "-o", tmp_path / "ckpt")
    assert result.returncode == 2
    assert "--yes" in result.stderr
    _no_traceback(result)
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_folder_is_refused(quantizable_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious", encoding="utf-8")
    result = twofold(quantizable_folder, "-o", tmp_path, "--yes", "--force")
    assert result.returncode == 1
    assert "not empty" in result.stderr
    _no_traceback(result)
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "precious"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--residual-bits", "3"], 2, "residual bits cannot be 3"),
        (["--residual-bits", "9"], 2, "residual bits cannot be 9"),
        (["--refine", "65"], 2, "the draft cannot be refined 65 times over"),
        (["--refine", "-1"], 2, "the draft cannot be refined -1 times over"),
        (["--seed", "-1"], 2, "seed cannot be -1"),
        (["--calibration-tokens", "0"], 2, "calibrate with 0 tokens"),
        (["--format", "xml"], 2, "--format"),
        (["--calibration", "no-such-file.txt"], 1, "does not exist"),
    ],
)
def test_bad_options(quantizable_folder: Path, tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    result = twofold(quantizable_folder, "-o", tmp_path / "ckpt", "--yes", *arguments)
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert "hint:" in result.stderr
    _no_traceback(result)
    assert list(tmp_path.iterdir()) == []


def test_an_architecture_that_only_planning_knows_is_refused(tmp_path: Path) -> None:
    result = twofold("google/gemma-4-31B-it", "-o", tmp_path / "ckpt", "--yes")
    assert result.returncode == 1
    assert "gemma4" in result.stderr
    _no_traceback(result)
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_model_is_refused(quantizable_folder: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(quantizable_folder, tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    out = tmp_path / "ckpt"
    result = twofold(broken, "-o", out, "--yes", "--calibration", "shipped", "--calibration-tokens", "300")
    assert result.returncode == 1
    assert "truncated" in result.stderr
    _no_traceback(result)
    assert not out.exists()
    assert not out.with_name("ckpt.partial").exists()


@pytest.mark.parametrize("force", [False, True])
def test_what_a_stopped_run_finished_is_kept_and_said(
    quantizable_folder: Path,
    tmp_path: Path,
    isolated_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    force: bool,
) -> None:
    folder = tmp_path / "ckpt"
    asked = ["quantize", str(quantizable_folder), "-o", str(folder), "--calibration-tokens", "400", "--yes"]

    @contextlib.contextmanager
    def stopping(title: str) -> Iterator[Callable[[int, int, str], None]]:
        """Ctrl-C as soon as a layer is finished."""

        def tell(done: int, total: int, what: str) -> None:
            if title == "quantising" and left_by(folder, QuantizeOptions()).layers >= 1:
                raise KeyboardInterrupt

        yield tell

    with monkeypatch.context() as patch:
        patch.setattr("twofold.cli.quantize_job.bar", stopping)
        assert run_app(lambda: build_app()([*asked, *(["--force"] if force else [])])) == 130
    done = left_by(folder, QuantizeOptions()).layers
    told = capsys.readouterr().err
    again = "the same command without --force" if force else "the same command"
    assert f"{done} layer{'' if done == 1 else 's'} {'is' if done == 1 else 'are'} finished and kept: {again}" in told
    assert done >= 1 and told.endswith("interrupted\n")
    starts: list[int] = []

    @contextlib.contextmanager
    def watching(title: str) -> Iterator[Callable[[int, int, str], None]]:
        yield lambda done, total, what: starts.append(done) if title == "quantising" else None

    monkeypatch.setattr("twofold.cli.quantize_job.bar", watching)
    assert run_app(lambda: build_app()(asked)) == 0
    assert min(starts) >= done and (folder / "config.json").is_file()
