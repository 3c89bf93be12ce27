"""What int8 activations would bring, on the command line: `fit` in words, JSON and HTML; old checkpoints say so."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.cli.fit_options import local_machine
from twofold.cli.rounding import quantise_again
from twofold.engine.checkpoint import Checkpoint
from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.kernels.cpu import missing_reason
from twofold.planner.timed import names
from twofold.profiles.activations import CHOICES, Activations
from twofold.profiles.kernel_store import own_timings, save_timings
from twofold.profiles.pass_store import passes_dir
from twofold.profiles.settings import checkpoints_dir

FAR, NEAR = [-127, -38, 38, 127], [-10, -3, 3, 10]
FAST = ("--ram", "16", "--ram-gb-s", "500", "--cpu", "avx2")
AVX2, AVX512 = ("--cpu", "avx2"), ("--cpu", "avx512")
needs_native = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")


def _run(*arguments: str) -> int:
    return run_app(lambda: build_app()(["fit", *arguments]))


def _fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert _run(*arguments, "--format", "json") in (0, 3)
    return json.loads(capsys.readouterr().out)


def _line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str | None:
    assert _run(*arguments) in (0, 3)
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("--activations int8")]
    assert len(found) <= 1
    return found[0] if found else None


def _checkpoint(source: Path, folder: Path, levels: list[int], **measured: Any) -> Path:
    """A copy of a checkpoint with other base levels, and with what was measured of it."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    made = config["quantization_config"]
    made["measured"] = measured
    made["base"]["levels"] = levels
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def timings(tiny_checkpoint: Path, timed_tables: Any) -> Callable[..., None]:
    """Kernels as if timed here: `timings("int8", 0.6)` takes so much of the plain cost, without a draft that pays."""
    host = local_machine().host
    assert host is not None
    spec = Checkpoint.open(tiny_checkpoint).spec

    def make(activations: str, share: float, isa: str = "avx2") -> None:
        def cost(op: str, size: int, rows: int) -> float:
            return float(share * timed_tables.plain_cost(op, size, rows) + (1e6 if op == names.GUESS else 0))

        table = timed_tables.table(spec, cost, isa=isa, threads=host.threads, activations=activations)
        assert save_timings(table)

    return make


def _rows(kl: float) -> dict[str, Any]:
    figure = {"value": kl, "unit": "nats", "source": "measured", "by": "test"}
    return {"rows": {"verifier": {"kl": figure}}, "tokens": 4321}


def test_words_and_json_say_the_same_and_the_flag_is_what_reaches_it(capsys: pytest.CaptureFixture[str]) -> None:
    line, found = _line(capsys, "smollm2", *FAST), _fit(capsys, "smollm2", *FAST)
    gain = found["other_activations"]
    assert found["plan"]["activations"] == "int16" and gain["activations"] == "int8"
    assert gain["is_decode_faster"] and gain["is_prompt_faster"]
    decode, own = gain["decode_tok_s"], gain["plan_decode_tok_s"]
    assert own == found["speed"]["decode_tok_s"] and gain["plan_ttft_1k_s"] == found["speed"]["ttft_1k_s"]
    assert decode["source"] == "reasoned" and decode["low"] < decode["value"] < decode["high"]
    assert gain["kl"]["value"] == 0.00187 and gain["plan_kl"] == found["kl"]
    assert line is not None
    ranged = f"{decode['value']:.1f} tok/s ({decode['low']:.1f} to {decode['high']:.1f}, reasoned)"
    for words in (
        f"decode {ranged} instead of {own['value']:.1f} tok/s",
        "first token after 1K",
        "KL 0.00187 nats (reported) instead of 0.00101 nats (reported)",
        gain["by"],
    ):
        assert words in line
    assert gain["command"] == f"twofold fit smollm2 {' '.join(FAST)} --activations int8"
    reached = _fit(capsys, "smollm2", *FAST, *gain["options"].split())
    assert reached["speed"]["decode_tok_s"] == decode and reached["speed"]["ttft_1k_s"] == gain["ttft_1k_s"]
    assert reached["other_activations"] is None and reached["kl"] == gain["kl"]


def test_it_is_said_only_where_it_may_be_and_was_not_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in (("--activations", "int16"), ("--activations", "int8"), ("--min-quality", "0.0015")):
        assert _line(capsys, "smollm2", *FAST, *options) is None
    slow = ("--ram", "16", "--ram-gb-s", "0.1", "--cpu", "avx512vbmi")  # reading is everything, prompts too
    assert _fit(capsys, "smollm2", *slow)["other_activations"] is None
    assert _fit(capsys, "smollm2", "--card", "RTX 4090")["other_activations"] is None
    monkeypatch.setenv("TWOFOLD_ACTIVATIONS", "int16")
    assert _line(capsys, "smollm2", *FAST) is None
    monkeypatch.setenv("TWOFOLD_ACTIVATIONS", "int4")
    assert _run("smollm2", *FAST) == 2 and "TWOFOLD_ACTIVATIONS" in capsys.readouterr().err


@needs_native
def test_a_kl_that_nobody_knows_has_its_command(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path, timings: Callable[..., None]
) -> None:
    timings("int16", 1.0)
    timings("int8", 0.5)
    new = _checkpoint(tiny_checkpoint, tmp_path / "a new one", NEAR)
    line = _line(capsys, str(new), *AVX2)
    assert line is not None and f"KL unknown: `twofold eval '{new}' --activations int8` measures it" in line
    half = _checkpoint(tiny_checkpoint, tmp_path / "half", NEAR, **_rows(0.012))
    line = _line(capsys, str(half), *AVX2)
    assert line is not None and "measures it; the plan's is 0.012 nats" in line
    int8 = {"int8": _rows(0.034)}
    judged = _checkpoint(tiny_checkpoint, tmp_path / "judged", NEAR, other_activations=int8, **_rows(0.012))
    line = _line(capsys, str(judged), *AVX2)
    assert line is not None and "KL 0.034 nats (reported) instead of 0.012 nats (reported)" in line
    # a model that this version does not run cannot be evaluated by it
    gemma = ("google/gemma-4-31B-it", "--card", "RTX 4090", "--ram", "64", "--ram-gb-s", "36", "--cpu", "avx2")
    line = _line(capsys, *gemma)
    assert line is not None and "KL unknown; from bytes" in line and "twofold eval" not in line


def test_the_page_has_both_figures_and_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "fit.html"
    assert _run("smollm2", *FAST, "--html", str(page)) == 0
    text = page.read_text()
    assert "Likely faster with int8 activations" in text and "--activations int8</code>" in text
    (part,) = re.findall(r"<h3>Likely faster.*?</section>", text, re.DOTALL)
    assert part.count("instead of") == 3 and "0.00187 nats" in part and "0.00101 nats" in part
    assert _run("smollm2", *FAST, "--activations", "int8", "--html", str(page)) == 0
    assert "Likely faster" not in page.read_text()


@needs_native
def test_this_machines_timings_are_what_it_says(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path, timings: Callable[..., None]
) -> None:
    model = str(_checkpoint(tiny_checkpoint, tmp_path / "near", NEAR))
    timings("int16", 1.0)
    assert _line(capsys, model, *AVX2) is None  # int8 was not timed, and no bandwidth is known
    timings("int8", 0.6)
    line = _line(capsys, model, *AVX2)
    assert line is not None and "kernels measured here" in line and "int8 activations, n" in line
    timings("int8", 0.97)  # as with VNNI
    assert _line(capsys, model, *AVX2) is None


@needs_native
def test_an_old_checkpoint_is_promised_nothing_and_told_why(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path, timings: Callable[..., None]
) -> None:
    for isa in ("avx2", "avx512"):
        timings("int16", 1.0, isa)
        timings("int8", 0.5, isa)
    old, new = (str(_checkpoint(tiny_checkpoint, tmp_path / str(levels[0]), levels)) for levels in (FAR, NEAR))

    def answers(model: str, *options: str) -> tuple[bool, bool]:
        """Whether a gain is promised, and whether the note is there."""
        found = _fit(capsys, model, *options)
        return found["other_activations"] is not None, any("bring little" in one for one in found["notes"])

    assert answers(old, *AVX2) == answers(old, *AVX2, "--activations", "int8") == (False, True)
    assert answers(old, *AVX2, "--activations", "int16") == (False, False)
    assert answers(old, *AVX512) == answers(new, *AVX2) == (True, False)


def test_the_checkpoint_made_here_counts_for_the_model_that_is_named(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path
) -> None:
    assert _fit(capsys, "smollm2", *FAST)["other_activations"] is not None
    made = _checkpoint(tiny_checkpoint, checkpoints_dir() / "smollm2-r6-s0", FAR)
    found = _fit(capsys, "smollm2", *FAST)
    assert found["other_activations"] is None
    (note,) = (one for one in found["notes"] if "bring little" in one)
    assert note.endswith("twofold quantize smollm2 --residual-bits 6 --force")
    near = json.loads((made / "config.json").read_text())
    near["quantization_config"]["base"]["levels"] = NEAR
    near["quantization_config"]["measured"] = {"other_activations": {"int8": _rows(0.034)}} | _rows(0.012)
    (made / "config.json").write_text(json.dumps(near))
    found = _fit(capsys, "smollm2", *FAST)  # what `twofold eval smollm2` measured
    assert (found["kl"]["value"], found["other_activations"]["kl"]["value"]) == (0.012, 0.034)
    assert _fit(capsys, "smollm2", *FAST, "--residual-bits", "8")["kl"]["source"] == "unknown"
    for damage in ("not JSON", "[]", '{"quantization_config": {"quant_method": "twofold"}}'):
        (made / "config.json").write_text(damage)
        assert _fit(capsys, "smollm2", *FAST)["other_activations"] is not None


def test_the_command_names_the_source_where_it_can_be_typed(tiny_checkpoint: Path) -> None:
    made = json.loads((tiny_checkpoint / "config.json").read_text())["quantization_config"]
    for name, words in (("smollm2", "smollm2"), ("org/name", "org/name"), ("some.Q4_1", "SOURCE"), (None, "SOURCE")):
        config = CheckpointConfig.from_json(made | {"source": {"name": name} if name else {}})
        command = quantise_again("there", config, is_in_place=False)
        assert command == f"twofold quantize {words} -o DIR --residual-bits {config.residual_bits}"


WARNING = "warning: int8 activations bring little with this checkpoint here"


def _warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(WARNING)]


def _cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twofold", *arguments]
    environment = os.environ | environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False, input="")


@pytest.fixture
def without_vnni() -> None:
    """The AVX2 kernels of a processor without AVX-VNNI; elsewhere nothing is slow."""
    from twofold.kernels.cpu import native

    features = native().cpu_features()
    if "avx2" not in features["tiers"] or features["flags"]["avx_vnni"]:
        pytest.skip("no AVX2, or with VNNI")


@needs_native
@pytest.mark.usefixtures("without_vnni")
@pytest.mark.parametrize(
    "command, options",
    [
        ("run", ("hello", "--raw", "--max-tokens", "2")),
        ("chat", ()),
        ("bench", ("--tokens=16", "--prompt-tokens=16", "--widths=1", "--repeats=1")),
        ("eval", ("--kv", "q8_0")),
        ("tune", ("--trials", "0", "--ctx", "96")),
    ],
)
def test_a_command_that_opens_an_old_checkpoint_says_it_once(
    tiny_checkpoint: Path, tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    old = str(_checkpoint(tiny_checkpoint, tmp_path / "old", FAR))
    done = _cli(command, old, *options, "--activations", "int8", TWOFOLD_CPU_ISA="avx2")
    assert done.returncode == 0, done.stderr
    (line,) = _warnings(done.stderr)
    assert re.search(r"twofold quantize \S+ -o DIR --residual-bits \d$", line) and "bring little" not in done.stdout


@needs_native
@pytest.mark.usefixtures("without_vnni")
def test_near_levels_int16_and_other_kernels_are_not_warned_of(tiny_checkpoint: Path, tmp_path: Path) -> None:
    old, new = (str(_checkpoint(tiny_checkpoint, tmp_path / str(levels[0]), levels)) for levels in (FAR, NEAR))
    int8 = ("--activations", "int8")
    for model, options, isa in ((new, int8, "avx2"), (old, (), "avx2"), (old, int8, "generic")):
        done = _cli("run", model, "hello", "--raw", "--max-tokens", "2", *options, TWOFOLD_CPU_ISA=isa)
        assert done.returncode == 0 and not _warnings(done.stderr)


@needs_native
@pytest.mark.usefixtures("without_vnni")
@pytest.mark.parametrize("activations", CHOICES)
def test_kernel_times_do_not_pass_between_far_and_near_levels(
    tiny_checkpoint: Path, tmp_path: Path, timings: Callable[..., None], activations: Activations
) -> None:
    """Not under int16 either: its drafts read one plane as well."""
    old, new = (str(_checkpoint(tiny_checkpoint, tmp_path / str(levels[0]), levels)) for levels in (FAR, NEAR))
    rounding = ("--activations", activations)
    quick = ("bench", old, "--kernels", "--tiers", "avx2", "--repeats", "1", "--working-set-mib", "1", *rounding)
    done = _cli(*quick, TWOFOLD_CPU_ISA="avx2")
    assert done.returncode == 0 and "the kernels' times are not kept" in done.stderr, done.stderr
    assert own_timings() == ()
    shutil.rmtree(passes_dir())
    timings(activations, 1.0)
    run = ("hello", "--raw", "--max-tokens", "2", *rounding, "--threads", str(own_timings()[0].threads))
    for model, n_timed in ((new, 0), (old, 1)):  # passes of the new one are sums of kernels, of the old one its own
        assert _cli("run", model, *run, TWOFOLD_CPU_ISA="avx2").returncode == 0
        assert len(list(passes_dir().glob("*.json")) if passes_dir().is_dir() else []) == n_timed


@needs_native
@pytest.mark.usefixtures("without_vnni")
def test_doctor_lists_old_checkpoints_and_warns_where_int8_is_set(tiny_checkpoint: Path) -> None:
    def check(**environment: str) -> dict[str, Any]:
        done = _cli("doctor", "--format", "json", **({"TWOFOLD_CPU_ISA": "avx2"} | environment))
        (found,) = (one for one in json.loads(done.stdout)["checks"] if one["name"] == "checkpoints")
        return dict(found)

    assert check()["found"] == "none made here yet"
    _checkpoint(tiny_checkpoint, checkpoints_dir() / "new-r6-s0", NEAR)
    damaged = _checkpoint(tiny_checkpoint, checkpoints_dir() / "damaged-r6-s0", FAR)
    (damaged / "config.json").write_text("not JSON")
    assert check(TWOFOLD_ACTIVATIONS="int8")["found"] == "1 made here"
    _checkpoint(tiny_checkpoint, checkpoints_dir() / "old-r6-s0", FAR)
    usual, int8 = check(), check(TWOFOLD_ACTIVATIONS="int8")
    assert usual["status"] == "ok" and usual["remedy"] is None and "old-r6-s0" in usual["found"]
    assert int8["status"] == "warn" and "old-r6-s0" in int8["found"] and "twofold quantize" in int8["remedy"]
    assert "new-r6-s0" not in int8["found"] and "damaged" not in int8["found"]
    assert check(TWOFOLD_CPU_ISA="nonsense")["status"] == "ok"  # another check says what is wrong
    assert check(TWOFOLD_ACTIVATIONS="int4")["status"] == "ok"


@needs_native
def test_tune_says_what_int8_would_bring_and_keeps_the_knob(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path, timings: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    old, new = (str(_checkpoint(tiny_checkpoint, tmp_path / str(levels[0]), levels)) for levels in (FAR, NEAR))
    host = local_machine().host
    assert host is not None and host.isa_tier is not None

    def tune(model: str, form: str, *options: str) -> Any:
        options = ("--ctx", "256", "--trials", "0", *options, "--format", form)
        assert run_app(lambda: build_app()(["tune", model, *options])) == 0
        return capsys.readouterr().out

    def gain(model: str, *options: str) -> Any:
        return json.loads(tune(model, "json", *options))["other_activations"]

    assert gain(new) is None  # nothing is known of either
    for activations, share in (("int16", 1.0), ("int8", 0.5)):
        timings(activations, share, host.isa_tier)
    searched = json.loads(tune(new, "json", "--trials", "2", "--budget", "1"))
    found = searched["other_activations"]
    assert searched["plan"]["activations"] == "int16" and found["activations"] == "int8" and found["is_decode_faster"]
    assert found["decode_tok_s"]["source"] == "reasoned" and "kernels measured here" in found["by"]
    (line,) = (one for one in tune(new, "human").splitlines() if one.startswith("--activations int8"))
    assert f"KL unknown: `twofold eval {new} --activations int8` measures it" in line
    assert gain(new, "--activations", "int16") is None and gain(new, "--activations", "int8") is None
    is_slow = host.isa_tier == "avx2" and not host.has_avx_vnni
    assert (gain(old) is None) == is_slow
    monkeypatch.setenv("TWOFOLD_ACTIVATIONS", "int16")
    assert gain(new) is None
