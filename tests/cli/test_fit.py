"""`twofold fit` from the outside: exit codes, JSON, bad options, no torch, no network."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.cli.fit_terms import term_name
from twofold.planner.plan import Plan
from twofold.probes import probe
from twofold.profiles.export import document_of, to_bytes

GEMMA = ("google/gemma-4-31B-it", "--card", "RTX 4090", "--ctx", "32K")


def run(*arguments: str) -> int:
    return run_app(lambda: build_app()(["fit", *arguments]))


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(*arguments, "--format", "json") == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_promised_command_needs_no_torch_and_no_network(tmp_path: Path) -> None:
    script = (
        "import socket, sys\n"
        "def refuse(*args, **kwargs): raise AssertionError('network')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "from twofold.cli import main\n"
        f"sys.argv = ['twofold', 'fit', *{GEMMA!r}, '--format', 'json']\n"
        "code = main()\n"
        "heavy = [name for name in ('torch', 'transformers', 'huggingface_hub') if name in sys.modules]\n"
        "assert not heavy, heavy\n"
        "raise SystemExit(code)\n"
    )
    environment = os.environ | {"TWOFOLD_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "fits"
    assert found["runnable"] is False
    assert "gemma4" in found["runnable_reason"]


def test_human_answer_leads_with_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*GEMMA) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith("FITS, but this version cannot run it: google/gemma-4-31B-it on NVIDIA GeForce RTX 4090")
    assert any(line.startswith("the host must have: ") for line in lines)
    assert any("llama-server -hf " in line for line in lines)
    assert "the host's RAM is unknown and not judged" in shown.err


def test_the_first_line_says_that_a_floor_was_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("meta-llama/Llama-3.1-8B", "--card", "4090", "--min-quality", "0.00001") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "FITS, quality floor not judged, but this version cannot run it: meta-llama/Llama-3.1-8B"
    )
    assert lines[1].startswith("quality floor KL 1e-05: not judged: no KL of 8 bits is known")
    assert "1: not judged against the quality floor" in lines
    assert run("google/gemma-4-12B-it", "--card", "4090", "--min-quality", "0.0005") == 4
    assert capsys.readouterr().out.startswith("FITS, below the quality floor")


def test_plain_pipe_output_is_ascii_where_the_stream_is(tmp_path: Path) -> None:
    environment = os.environ | {"TWOFOLD_HOME": str(tmp_path), "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "twofold", "fit", *GEMMA, "--explain"]
    done = subprocess.run(command, check=False, capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0
    done.stdout.decode("ascii")
    assert b"\x1b[" not in done.stdout + done.stderr


def test_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *GEMMA)
    expected = {"verdict", "runnable", "plan", "memory", "speed", "shortfall_mib", "nearest", "alternatives"}
    assert expected <= set(found)
    assert found["schema_version"] == 1
    assert found["plan"]["context_tokens"] == 32768
    total = found["memory"]["vram"]["total_mib"]
    assert total["unit"] == "MiB" and total["source"] == "reasoned"
    assert found["shortfall_mib"]["value"] == 0
    assert found["host_needs"]["ram_mib"]["value"] > 0
    assert found["machine"]["host"] is None


def test_does_not_fit_is_4_and_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "google/gemma-4-31B-it", "--card", "3060 12gb", "--ctx", "128K", code=4)
    assert found["verdict"] == "does_not_fit"
    assert found["shortfall_mib"]["value"] > 0
    near = found["nearest"][0]
    again = document(capsys, "google/gemma-4-31B-it", "--card", "3060 12gb", *near["options"].split())
    assert again["verdict"] == "fits"


def test_tight_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    need = document(capsys, "Qwen/Qwen3-8B", "--ram", "64")["memory"]["ram"]["total_mib"]["value"]
    found = document(capsys, "Qwen/Qwen3-8B", "--ram", f"{(need + 50) / 1024:.5f}", code=3)
    assert found["verdict"] == "tight"
    assert document(capsys, "Qwen/Qwen3-8B", "--ram", f"{(need + 900) / 1024:.5f}", "--margin", "100")


def test_stated_host_gives_a_speed(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *GEMMA, "--ram", "64G", "--ram-gb-s", "36", "--cpu", "avx512")
    assert found["speed"]["decode_tok_s"]["source"] == "reasoned"
    assert found["speed"]["decode_tok_s"]["low"] < found["speed"]["decode_tok_s"]["high"]
    assert [device["device"] for device in found["devices"]] == ["vram", "ram"]
    assert found["host_needs"] is None


def test_a_card_alone_borrows_nothing_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *GEMMA)
    assert [device["device"] for device in found["devices"]] == ["vram"]
    assert found["speed"]["decode_tok_s"]["source"] == "unknown"
    assert found["plan"]["threads"] == 1 and found["plan"]["cpu_isa"] == "generic"


def test_this_machine_runs_the_default_model(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "smollm2")
    assert found["verdict"] == "fits"
    assert found["runnable"] is True and found["runnable_reason"] is None
    assert found["plan"]["device"] == "cpu"
    assert found["as_is"]["command"].startswith("llama-server --hf-repo ")


def test_a_gguf_is_answered_twice(capsys: pytest.CaptureFixture[str], smollm2_gguf: Path) -> None:
    found = document(capsys, str(smollm2_gguf))
    assert found["verdict"] == "fits" and found["runnable"] is True
    assert found["as_is"]["engine"] == "llama.cpp"
    assert f"-m {smollm2_gguf}" in found["as_is"]["command"]
    assert found["download_mib"]["value"] == 0
    alias = document(capsys, "smollm2")
    assert found["memory"]["ram"]["kv_mib"] == alias["memory"]["ram"]["kv_mib"]
    assert found["memory"]["ram"]["residual_mib"] == alias["memory"]["ram"]["residual_mib"]


def test_ranking_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--card", "RTX 4090")
    assert len(found["models"]) >= 14
    assert {"verdict", "runnable", "quality", "decode_tok_s", "download_mib"} <= set(found["models"][0])
    assert run() == 0
    assert "Qwen/Qwen3-8B" in capsys.readouterr().out


def test_profile_of_another_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(to_bytes(document_of(probe(bandwidth=False))))
    found = document(capsys, "Qwen/Qwen3-8B", "--profile", str(path), "--ram", "64", "--ram-gb-s", "50")
    assert found["machine"]["origin"] == "a profile"
    assert found["speed"]["decode_tok_s"]["source"] == "reasoned"
    assert any("advice" in note for note in found["notes"])


def test_explain_prints_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*GEMMA, "--kv", "f16", "--explain") == 0
    shown = capsys.readouterr().out
    assert "81920 B per token × 32768 tokens (K f16, V f16)" in shown
    assert "facts of the model: shipped facts of google/gemma-4-31B-it" in shown
    assert "bandwidth" in shown


def test_contexts_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    for text, tokens in (("32K", 32768), ("25.6k", 25600), ("4096", 4096)):
        assert document(capsys, *GEMMA[:3], "--ctx", text)["plan"]["context_tokens"] == tokens


BAD = [
    (("--ctx", "0"), "--ctx"),
    (("--ctx", "-1"), "--ctx"),
    (("--ctx", "1e9"), "--ctx"),
    (("--ctx", "32X"), "--ctx"),
    (("--ctx", "1M"), "context is longer"),
    (("--card", "RTX 9999"), "9999"),
    (("--card", "RTX 4090", "--profile", "x.json"), "two different machines"),
    (("--profile", "missing.json"), "missing.json"),
    (("--ram", "-3"), "--ram"),
    (("--ram", "nan"), "--ram"),
    (("--ram-gb-s", "fast"), "--ram-gb-s"),
    (("--cpu", "mmx"), "instruction set"),
    (("--kv", "q5_0"), "--kv"),
    (("--kv", "q4_0"), "below the quality floor"),
    (("--min-quality", "best"), "quality floor"),
    (("--margin", "-1"), "--margin"),
    (("--residual-bits", "9"), "--residual-bits"),
    (("--residual-bits", "6.5"), "--residual-bits"),
    (("--residual-bits", "5"), "below the quality floor"),
    (("--card", "RTX 4090", "--vram", "0"), "--vram"),
    (("--format", "yaml"), "--format"),
]


@pytest.mark.parametrize("options, words", BAD)
def test_bad_options(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str) -> None:
    code = run("Qwen/Qwen3-8B", *options)
    shown = capsys.readouterr()
    assert code == 2 or (code == 1 and "--profile" in options), shown.err
    assert words in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_an_architecture_that_is_not_understood_is_unknown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["FooForCausalLM"], "model_type": "foo"}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    found = document(capsys, str(tmp_path), code=5)
    assert found["verdict"] == "unknown"
    assert found["runnable"] is False
    assert run(str(tmp_path)) == 5
    shown = capsys.readouterr()
    assert shown.out.count("cannot estimate") == 1 and "hint: " in shown.err


def test_a_model_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("no-such-model") == 1
    assert "Traceback" not in capsys.readouterr().err


def test_damaged_weights_of_a_folder_do_not_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 100,
        "max_position_embeddings": 512,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = tmp_path / "model.safetensors"
    save_file({"a": np.zeros(64, np.float32)}, weights)
    # A whole file: the weights are counted from the configuration.
    assert run(str(tmp_path)) in (0, 3)
    capsys.readouterr()
    whole = weights.read_bytes()
    index = tmp_path / "model.safetensors.index.json"
    for damage, words in ((whole[:-1], "truncated"), (whole[:20], "model.safetensors"), (b"", "model.safetensors")):
        weights.write_bytes(damage)
        assert run(str(tmp_path)) == 1
        assert words in capsys.readouterr().err
    weights.write_bytes(whole)
    index.write_text(json.dumps({"weight_map": {"a": "model-00002-of-00002.safetensors"}}))
    assert run(str(tmp_path)) == 1
    assert "lacks weights" in capsys.readouterr().err


def test_a_checkpoint_whose_record_is_incomplete_does_not_fit(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    shutil.copytree(tiny_checkpoint, folder)
    assert run(str(folder)) in (0, 3)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "twofold"}
    (folder / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert run(str(folder)) != 0
    shown = capsys.readouterr()
    assert "FITS" not in shown.out and "version" in shown.err


def test_near_plans_are_commands_that_fit(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("google/gemma-4-31B-it", "--card", "3060 12gb", "--ctx", "64K", "--residual-bits", "7")
    found = document(capsys, *asked, code=3)
    assert len(found["nearest"]) >= 2
    assert any(near["below_floor"] for near in found["nearest"])
    for near in found["nearest"]:
        words = shlex.split(near["command"])
        assert words[:5] == ["twofold", "fit", "google/gemma-4-31B-it", "--card", "3060 12gb"]
        again = document(capsys, *words[2:], "--trials", "0")
        assert again["verdict"] == "fits"
        for knob in ("context_tokens", "residual_bits", "k_type"):
            assert again["plan"][knob] == near["plan"][knob]
    assert run(*asked) == 3
    shown = capsys.readouterr()
    for near in found["nearest"]:
        assert near["command"] in shown.out
    assert found["nearest"][0]["command"] in shown.err


def test_pareto_in_words_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *GEMMA, "--ram", "64", "--ram-gb-s", "36", "--cpu", "avx512", "--pareto")
    assert {point["quality"] for point in found["pareto"]} == {"q8", "q6", "q4"}
    for point in found["pareto"]:
        assert point["decode_full_tok_s"]["source"] == "reasoned"
        assert Plan.model_validate(point["plan"]).context_tokens == point["context_tokens"]
    floored = document(capsys, *GEMMA, "--min-quality", "q8", "--pareto")
    assert {point["quality"] for point in floored["pareto"]} == {"q8"}
    assert run(*GEMMA, "--pareto") == 0
    shown = capsys.readouterr()
    assert "tok/s with a full context, of plans that no other beats" in shown.out
    assert "50 GB/s; --ram-gb-s and --cpu state yours" in shown.err
    assert "pareto" not in document(capsys, *GEMMA)


@pytest.mark.parametrize("options", [("--pareto",), ("--pareto", "--engine", "llama.cpp", "Qwen/Qwen3.8-27B")])
def test_pareto_is_about_one_model_of_twofolds(capsys: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    assert run(*options) == 2
    assert "--pareto" in capsys.readouterr().err


def test_force_changes_the_exit_code_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("google/gemma-4-31B-it", "--card", "3060 12gb", "--ctx", "128K")
    plain, forced = document(capsys, *asked, code=4), document(capsys, *asked, "--force")
    assert forced.pop("is_forced") is True and plain.pop("is_forced") is False
    assert forced == plain
    assert run(*asked, "--force") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("DOES NOT FIT")
    assert "forced: the exit code is 0, and the verdict is still: does not fit" in shown.err
    llama = ("Qwen/Qwen3.8-27B", "--engine", "llama.cpp", "--weights-name", "Q8_0", "--card", "3060 12gb")
    assert run(*llama) == 4 and run(*llama, "--force") == 0


def test_force_takes_an_unknown_model_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["FooForCausalLM"], "model_type": "foo"}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert document(capsys, str(tmp_path), "--force")["verdict"] == "unknown"


def test_a_checkpoints_own_kl_is_shown(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    assert document(capsys, str(tiny_checkpoint))["kl"]["source"] == "unknown"
    folder = tmp_path / "judged"
    shutil.copytree(tiny_checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    kl = {"value": 0.0123, "unit": "nats", "source": "measured", "by": "test"}
    config["quantization_config"]["measured"] = {"rows": {"verifier": {"kl": kl}}, "tokens": 4321}
    (folder / "config.json").write_text(json.dumps(config))
    found = document(capsys, str(folder))["kl"]
    assert found["value"] == 0.0123 and found["source"] == "reported" and "4,321" in found["by"]
    other = document(capsys, str(folder), "--activations", "int8")
    assert other["plan"]["activations"] == "int8" and other["kl"]["source"] == "unknown"
    assert "--activations int8" in other["kl"]["by"]
    int8 = {"rows": {"verifier": {"kl": kl | {"value": 0.0456}}}, "tokens": 4321}
    measured = {"other_activations": {"int8": int8}}
    config["quantization_config"]["measured"] |= measured
    (folder / "config.json").write_text(json.dumps(config))
    assert document(capsys, str(folder), "--activations", "int8")["kl"]["value"] == 0.0456
    assert document(capsys, str(folder))["kl"]["value"] == 0.0123


def test_a_floor_takes_the_kl_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "smollm2", "--min-quality", "0.002")
    assert (found["plan"]["residual_bits"], found["quality_floor"], found["kl"]["value"]) == (6, "met", 0.00101)
    assert not any("cannot be turned" in note for note in found["notes"])
    found = document(capsys, "smollm2", "--min-quality", "0.0019", "--activations", "int8")
    assert (found["plan"]["activations"], found["quality_floor"]) == ("int8", "met")


def test_activations_are_part_of_the_plan_and_of_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    stated = ("Qwen/Qwen3-8B", "--ram", "32", "--ram-gb-s", "500", "--cpu", "avx2")
    usual, int8 = (document(capsys, *stated, "--activations", one) for one in ("int16", "int8"))
    bound = [one["speed_terms"]["bound: arithmetic"]["value"] for one in (usual, int8)]
    assert bound[0] == pytest.approx(1.5 * bound[1], rel=1e-3)
    assert usual["quality"] == int8["quality"] == "q8"
    (own,) = (one for one in int8["choices"] if one["engine"] == "twofold")
    assert "--activations int8" in own["command"]
    assert run(*stated, "--activations", "int8") in (0, 3, 4)
    assert "int8 activations" in capsys.readouterr().out


def test_a_gguf_is_answered_twice_in_words(capsys: pytest.CaptureFixture[str], smollm2_gguf: Path) -> None:
    assert run(str(smollm2_gguf)) == 0
    shown = capsys.readouterr().out
    assert "a GGUF file has two answers. As it is, with llama.cpp: fits, " in shown
    assert "Requantised by twofold: " in shown
    found = document(capsys, str(smollm2_gguf))
    size = smollm2_gguf.stat().st_size / (1 << 20)
    # The embedding is tied: once for look-ups, once as the head; a cache of 180 MiB and a mask beside it.
    assert size < found["as_is"]["ram_mib"]["value"] < size + 33 + 180 + 10


def test_explain_prints_every_term_that_json_has(capsys: pytest.CaptureFixture[str]) -> None:
    stated = (*GEMMA, "--ram", "64", "--ram-gb-s", "36", "--cpu", "avx512")
    found = document(capsys, *stated)
    assert run(*stated, "--explain") == 0
    shown = capsys.readouterr().out
    vram, ram, speed, terms = (*found["memory"].values(), found["speed"], found["speed_terms"])
    sizes = [(name.removesuffix("_mib"), figure) for name, figure in (*vram.items(), *ram.items())]
    for name, figure in (*sizes, *speed.items(), *terms.items()):
        if figure["source"] != "unknown" and figure.get("high", figure["value"]) < 0.0005:
            continue
        assert re.search(rf"^{re.escape(term_name(name))}  ", shown, re.MULTILINE), name
        assert figure["by"] in shown or name == "total"
    assert {"check: split Linears", "check: hand-offs", "draft: layers", "rate: ram_bytes_s"} <= set(
        found["speed_terms"]
    )


def test_the_ranking_says_its_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    rows = document(capsys, "--card", "RTX 4090")["models"]
    for row in rows:
        for name in ("compared_tok_s", "ttft_1k_s", "download_mib"):
            assert row[name]["low"] <= row[name]["value"] <= row[name]["high"], (row["model"], name)
    large = next(row for row in rows if row["model"] == "google/gemma-4-31B-it")
    assert large["decode_tok_s"]["source"] == "unknown", "nothing is borrowed from this machine"
    assert run("--card", "RTX 4090") == 0
    assert "* with a host of 8 cores, AVX-512 and 50 GB/s" in capsys.readouterr().out


def test_force_takes_a_stated_memory_that_the_card_is_not_known_to_have(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("Qwen/Qwen3-32B", "--card", "RTX 4090", "--vram", "40000", "--trials", "0")
    assert run(*asked) == 2
    assert "or --force" in capsys.readouterr().err
    found = document(capsys, *asked, "--force")
    assert found["devices"][0]["free_mib"]["value"] == 40000
    assert any("taken as stated (--force)" in note for note in found["notes"])
