"""`twofold profile`, by the real command line: what is written, printed, refused, and with which exit code."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.kernels.cpu import missing_reason
from twofold.profiles.importing import parse_profile
from twofold.profiles.store import own_path, profiles_dir

MACHINE = Path(__file__).parents[1] / "profiles" / "data" / "machine.json"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run_app(lambda: build_app()(list(arguments)))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_export_of_this_machine_can_be_posted_and_imported(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "my.json"
    code, out, err = run("profile", "export", str(path), "--no-bandwidth")
    assert (code, out) == (0, "")
    assert "it can be posted" in err
    text = path.read_text("utf-8")
    assert parse_profile(text.encode(), "my.json").cpu.logical_cores.number >= 1
    for personal in (str(Path.home()), str(tmp_path), os.uname().nodename if len(os.uname().nodename) > 3 else "/home"):
        assert personal not in text
    assert run("profile", "import", str(path), "--name", "mine")[0] == 0
    assert run("profile", "show", "mine")[0] == 0


def test_a_dry_run_prints_the_exact_bytes_and_writes_nothing(run: Run, tmp_path: Path, isolated_home: Path) -> None:
    target = tmp_path / "my.json"
    code, out, err = run("profile", "export", str(target), "--from", str(MACHINE), "--dry-run")
    assert code == 0 and out == MACHINE.read_text("utf-8")
    assert "nothing was written" in err
    assert run("profile", "export", "--dry-run", "--no-bandwidth")[0] == 0
    assert not target.exists() and list(isolated_home.rglob("*.json")) == []
    assert run("profile", "export", str(target), "--from", str(MACHINE))[0] == 0
    assert target.read_text("utf-8") == out


def test_export_to_standard_output_and_without_a_file(run: Run) -> None:
    code, out, _ = run("profile", "export", "-", "--from", str(MACHINE))
    assert code == 0 and json.loads(out)["schema_version"] == 1
    code, out, err = run("profile", "export")
    assert (code, out) == (2, "") and "--dry-run" in err


def test_export_refuses_what_identifies_and_leaves_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "janedoe")
    document = json.loads(MACHINE.read_text("utf-8"))
    document["observed"][0]["model"] = "janedoe/secret"
    source, target = tmp_path / "source.json", tmp_path / "out.json"
    source.write_text(json.dumps(document))
    code, out, err = run("profile", "export", str(target), "--from", str(source))
    assert (code, out) == (1, "") and "observed[0].model" in err and "--allow-word" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.json"]
    assert run("profile", "export", str(target), "--from", str(source), "--allow-word", "janedoe")[0] == 0


def test_export_replaces_a_profile_but_nothing_else(run: Run, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    code, _, err = run("profile", "export", str(thesis), "--from", str(MACHINE))
    assert code == 2 and "--force" in err and thesis.read_text() == "years of work"
    again = tmp_path / "my.json"
    assert [run("profile", "export", str(again), "--from", str(MACHINE))[0] for _ in range(2)] == [0, 0]
    assert run("profile", "export", str(thesis), "--from", str(MACHINE), "--force")[0] == 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that cannot be written")
def test_export_into_an_impossible_place(run: Run) -> None:
    code, _, err = run("profile", "export", "/proc/nowhere/my.json", "--from", str(MACHINE))
    assert code == 1 and "Traceback" not in err and "error:" in err


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"schema_version": 9}', b'{"schema_version": 1}', b"[" * 200_000, b'{"a": NaN}'],
)
def test_import_of_something_else_is_an_error_and_keeps_nothing(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    code, out, err = run("profile", "import", str(path))
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and "hint:" in err and "Traceback" not in err
    assert not profiles_dir().exists()


def test_import_of_200_mb_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    code, _, err = run("profile", "import", str(path))
    assert code == 1 and "200,000,000 bytes" in err


def test_import_never_replaces_another(run: Run, tmp_path: Path) -> None:
    assert run("profile", "import", str(MACHINE), "--name", "box")[0] == 0
    assert run("profile", "import", str(MACHINE), "--name", "box")[0] == 0
    document = json.loads(MACHINE.read_text("utf-8"))
    document["complete"] = False
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    code, _, err = run("profile", "import", str(other), "--name", "box")
    assert code == 2 and "different profile" in err
    code, out, _ = run("profile", "import", str(other), "--format", "json")
    stored = json.loads(out)
    assert code == 0 and stored["name"] == "2x-rtx-3090-63g"
    assert stat.S_IMODE(Path(stored["path"]).stat().st_mode) == 0o644


def test_list_and_show(run: Run) -> None:
    code, out, err = run("profile", "list")
    assert (code, out) == (0, "") and "no profile" in err
    run("profile", "import", str(MACHINE), "--name", "box")
    code, out, _ = run("profile", "ls")
    assert code == 0 and "2 × NVIDIA GeForce RTX 3090" in out and "2026-11-02" in out
    listed: Any = json.loads(run("profile", "list", "--format", "json")[1])
    assert listed["schema_version"] == 1
    assert listed["profiles"][0]["ram_total_mib"]["value"] == 64200
    code, out, _ = run("profile", "show", "box")
    assert code == 0 and "52.0 ± " in out and "measured" in out and "812.5 µs" in out
    code, out, _ = run("profile", "show", str(MACHINE), "--format", "json")
    assert json.loads(out) == json.loads(MACHINE.read_text("utf-8"))
    code, _, err = run("profile", "show", "nobody")
    assert code == 2 and "box" in err


def test_show_without_a_name_probes_this_machine_and_keeps_nothing(run: Run) -> None:
    code, out, _ = run("profile", "show", "--format", "json")
    assert code == 0
    assert json.loads(out)["ram"]["read_gb_s_all_cores"]["source"] == "unknown"
    assert not own_path().exists()


def test_text_from_others_cannot_act_on_the_terminal(run: Run, tmp_path: Path) -> None:
    document = json.loads(MACHINE.read_text("utf-8"))
    document["gpus"][0]["name"] = "RTX\x1b]0;owned\x07"
    path = tmp_path / "evil\x1b[2J.json"
    path.write_text(json.dumps(document))
    for arguments in (("import", str(path)), ("show", str(path)), ("show", "\x1b[31mx")):
        code, out, err = run("profile", *arguments)
        assert code in (1, 2) and "\x1b" not in out + err and "\x07" not in out + err


@pytest.mark.parametrize("arguments", [("show", "--format", "xml"), ("import",), ("frobnicate",), ("list", "--nope")])
def test_usage_errors(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("profile", *arguments)[0] == 2


def _sessions(**changes: Any) -> None:
    """A session as this machine leaves it, and one with `changes`."""
    import datetime

    from twofold.cli.own import key_of
    from twofold.probes import probe
    from twofold.profiles.session_store import SessionRecord, add_session

    day, machine = datetime.date(2026, 11, 30), key_of(probe(bandwidth=False))
    fields: dict[str, Any] = {
        "command": "chat", "ending": "end", "day": day, "machine": machine,
        "cpu": "x", "model": "smollm2", "vocab_size": 49152, "n_parameters": 1 << 27, "weights_bytes": 1 << 27,
        "residual_bits": 6, "context_tokens": 8192, "k_type": "f16", "v_type": "f16", "draft_nodes": 0,
        "draft_depth": 0, "prefill_chunk": 64, "threads": 2, "isa": "avx2", "build": "b1", "version": "1",
        "planned_mib": 500.0, "peak_mib": 264.0, "answers": 1, "decode": {"tok_s": 38.2, "tokens": 40},
    }  # fmt: skip
    assert add_session(SessionRecord(**fields)) and add_session(SessionRecord(**(fields | changes)))


def test_export_tells_of_own_sessions_on_this_hardware(run: Run, tmp_path: Path) -> None:
    _sessions(machine="f" * 32, model="of another machine")
    path = tmp_path / "my.json"
    code, _, err = run("profile", "export", str(path), "--no-bandwidth")
    assert code == 0 and "1 observed run," in err
    (seen,) = json.loads(path.read_text("utf-8"))["observed"]
    assert (seen["model"], seen["decode_tok_s"]["value"], seen["memory_peak_mib"]["value"]) == ("smollm2", 38.2, 264.0)
    assert run("profile", "import", str(path), "--name", "mine")[0] == 0
    assert "run smollm2 6 bit, context 8192" in run("profile", "show", "mine")[1]
    code, out, _ = run("profile", "export", "-", "--no-bandwidth", "--no-sessions")
    assert code == 0 and json.loads(out)["observed"] == [] and json.loads(out)["schema_version"] == 1


def test_the_table_for_an_issue(run: Run, tmp_path: Path) -> None:
    _sessions(k_type="q8_0")
    path = tmp_path / "table.md"
    code, out, _ = run("profile", "export", "--no-bandwidth", "--markdown", "--dry-run")
    assert code == 0 and out.startswith("### twofold on ") and not path.exists()
    assert run("profile", "export", str(path), "--no-bandwidth", "--markdown")[0] == 0
    assert path.read_text("utf-8") == out
    assert out.count("| tg40 @ d0, chat | 38.2 | 264 | 500 |") == 2
    assert run("profile", "export", str(path), "--no-bandwidth", "--markdown")[0] == 0  # its own, again
    path.write_text("years of work")
    code, _, err = run("profile", "export", str(path), "--no-bandwidth", "--markdown")
    assert code == 2 and "--force" in err and path.read_text() == "years of work"


def test_nothing_planted_around_an_export_leaves(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names in the environment, and a session whose model lies in a home folder."""
    planted = {"USER": "zaphod", "LOGNAME": "zaphod", "HOSTNAME": "heartofgold", "HF_TOKEN": "hf_SECRETSECRET"}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    _sessions(model="/home/zaphod/models/zaphods-7B.gguf zaphod", cpu="heartofgold", build="zaphod")
    for form in ((), ("--markdown",)):
        code, out, err = run("profile", "export", "-", "--no-bandwidth", *form)
        assert code == 0 and "1 observed run is left out" in err
        assert "smollm2" in out
        for word in ("zaphod", "heartofgold", "SECRET", str(tmp_path), str(Path.home()), "/home"):
            assert word not in out


@pytest.mark.skipif(missing_reason() is not None, reason="timings belong to a native module")
def test_export_tells_of_kernel_timings_of_this_build(run: Run) -> None:
    from twofold.profiles.figures import measured
    from twofold.profiles.hardware import KernelTiming
    from twofold.profiles.kernel_store import save_timings

    figure = measured(812.5, "us", "median of 5 rounds", n=5, spread=9.5)
    one = KernelTiming(op="product", shape="576x960", bits=6, rows=1, isa="avx2", threads=2, latency_us=figure)
    assert save_timings([one])
    code, out, err = run("profile", "export", "-", "--no-bandwidth")
    assert code == 0 and "1 kernel timing," in err
    (timing,) = json.loads(out)["kernels"]
    assert (timing["op"], timing["shape"], timing["latency_us"]["value"]) == ("product", "576x960", 812.5)
    assert parse_profile(out.encode(), "x").kernels == (one,)
    code, out, _ = run("profile", "export", "-", "--no-bandwidth", "--markdown")
    assert code == 0 and "| product | 576x960 | 6 | 1 | avx2 | 2 | 812.50 ± 7.04 |" in out


def test_every_refused_import_has_a_hint(run: Run, tmp_path: Path) -> None:
    big, empty, bad = tmp_path / "big.json", tmp_path / "empty.jsonl", tmp_path / "bad.jsonl"
    big.write_bytes(b" " * ((1 << 20) + 1))
    empty.write_bytes(b"")
    bad.write_text('{"id": "x"}\n')
    named = (str(MACHINE), "--name", "BAD NAME")
    for arguments in (named, (str(big),), (str(empty),), (str(bad),), (str(tmp_path / "none.jsonl"),)):
        code, _, err = run("profile", "import", *arguments)
        assert code in (1, 2) and "hint:" in err, arguments
    assert not profiles_dir().exists()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("gpus", 0, "vram_free_mib"), 99999), (("ram", "available_mib"), 99999999), (("cpu", "logical_cores"), 0),
        (("ram", "read_gb_s_all_cores"), 0), (("gpus", 0, "pcie", "h2d_gb_s"), 0), (("cpu", "isa_tiers"), ["avx99"]),
    ],
)  # fmt: skip
def test_an_impossible_profile_is_refused_on_import_and_on_use(
    run: Run, tmp_path: Path, path: tuple[str | int, ...], value: Any
) -> None:
    document = json.loads(MACHINE.read_text("utf-8"))
    here = document
    for step in path:
        here = here[step]
    here["value"] = value
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(document))
    for arguments in (("profile", "import", str(file)), ("fit", "smollm2", "--profile", str(file))):
        code, out, err = run(*arguments)
        assert (code, out) == (1, "") and str(path[-1]) in err and "hint:" in err


def test_both_types_of_a_mixed_cache_and_too_short_runs_are_told(run: Run, tmp_path: Path) -> None:
    _sessions(k_type="q8_0", v_type="q4_0", decode=None)
    path = tmp_path / "my.json"
    assert run("profile", "export", str(path), "--no-bandwidth")[0] == 0
    assert run("profile", "import", str(path), "--name", "mine")[0] == 0
    shown = run("profile", "show", "mine")[1]
    assert "KV K q8_0, V q4_0: unknown tok/s (too short to tell)" in shown and "KV f16: 38.2 tok/s" in shown
