"""`fit` with budgets that contradict each other and machines about which little can be said: a clear error or an honest
"unknown", with the promised exit codes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.probes import probe
from twofold.profiles.export import document_of, to_bytes

FITS, USAGE, DOES_NOT_FIT, UNKNOWN = 0, 2, 4, 5
QWEN = ("Qwen/Qwen3-8B", "--trials", "0")


def run(*arguments: str) -> int:
    return run_app(lambda: build_app()(["fit", *arguments]))


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = FITS) -> dict[str, Any]:
    assert run(*arguments, "--format", "json") == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _figure(value: object, unit: str = "") -> dict[str, object]:
    if value is None:
        return {"value": None, "unit": unit, "source": "unknown", "by": "the driver does not say"}
    return {"value": value, "unit": unit, "source": "reported", "by": "test"}


def _gpu(name: str, total: float | None, free: float | None, **more: object) -> dict[str, object]:
    link = {
        key: _figure(None, unit)
        for key, unit in (
            ("generation_max", ""), ("width_max", "lanes"), ("generation_now", ""), ("width_now", "lanes"),
            ("generation_load", ""), ("width_load", "lanes"), ("h2d_gb_s", "GB/s"), ("d2h_gb_s", "GB/s"),
        )
    }  # fmt: skip
    gpu = {
        "name": name,
        "vram_total_mib": _figure(total, "MiB"),
        "vram_free_mib": _figure(free, "MiB"),
        "compute_capability": _figure(None),
        "driver": _figure(None),
        "power_cap_w": _figure(None, "W"),
        "mig": _figure("off"),
        "display_attached": _figure(False),
        "unified_memory": _figure(False),
        "pcie": link,
    }
    return gpu | {key: _figure(value) for key, value in more.items()}


@pytest.fixture(scope="module")
def _here() -> Any:
    return json.loads(to_bytes(document_of(probe(bandwidth=False))))


@pytest.fixture
def profile(_here: Any, tmp_path: Path) -> Callable[..., str]:
    """The path of a profile with the given cards, and RAM as given."""

    def write(*gpus: dict[str, object], **ram: object) -> str:
        document = copy.deepcopy(_here)
        document["gpus"] = list(gpus)
        free = {"total_mib": 65_536, "available_mib": 60_000, "read_gb_s_all_cores": 40.0, "limit_mib": "none"} | ram
        for key, value in free.items():
            document["ram"][key] = _figure(value, "GB/s" if "gb_s" in key else "MiB")
        path = tmp_path / "machine.json"
        path.write_text(json.dumps(document), "utf-8")
        return str(path)

    return write


CONTRADICTIONS = [
    (("--card", "RTX 4090", "--vram", "40000"), "more free memory than NVIDIA GeForce RTX 4090 has"),
    (("--card", "RTX 4090", "--margin", "30000"), "--margin leaves nothing"),
    (("--card", "RTX 4090", "--vram", "8000", "--margin", "8000"), "--margin leaves nothing"),
    (("--card", "RTX 4090", "--profile", "x.json"), "two different machines"),
    (("--card", "RTX 4090", "--kv", "q4_0", "--min-quality", "q8"), "below the quality floor"),
    (("--card", "RTX 4090", "--residual-bits", "4", "--min-quality", "q6"), "below the quality floor"),
    (("--card", "RTX 4090", "--ctx", "64K"), "the context is longer than"),
    (("--card", "RTX 4090", "--engine", "vllm"), "the engine is not known"),
    (("--card", "RTX 4090", "--engine", "llama.cpp", "--weights-name", "Q8_0", "--margin", "30000"), "leaves nothing"),
    (("--card", "RTX 4090", "--engine", "llama.cpp", "--weights-name", "Q8_0", "--vram", "40000"), "more free memory"),
]


@pytest.mark.parametrize(("options", "words"), CONTRADICTIONS)
def test_contradictions_are_usage_errors(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert run(*QWEN[:1], *options) == USAGE
    shown = capsys.readouterr()
    assert words in shown.err and shown.out == ""
    assert "Traceback" not in shown.err


def test_found_needed_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QWEN, "--card", "RTX 4090", "--vram", "40000") == USAGE
    shown = capsys.readouterr().err
    assert "40,000 MiB" in shown and "24,564 MiB" in shown and "hint: --vram 24564" in shown


def test_less_ram_than_needed_does_not_fit_and_says_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    asked = (*QWEN, "--card", "RTX 3060 12GB", "--ram", "1")
    found = document(capsys, *asked, code=DOES_NOT_FIT)
    by_device = {device["device"]: device["verdict"] for device in found["devices"]}
    assert by_device == {"vram": "fits", "ram": "does_not_fit"}
    missing = found["shortfall_mib"]["value"]
    assert missing > 0
    enough = f"{1 + (missing + 1) / 1024:.4f}"
    assert document(capsys, *asked[:-1], enough)["verdict"] == "fits"


def test_stated_vram_of_almost_nothing_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *QWEN, "--card", "RTX 4090", "--vram", "100", "--margin", "0", code=DOES_NOT_FIT)
    assert found["verdict"] == "does_not_fit"


@pytest.mark.parametrize(
    ("total", "free", "words"),
    [(24_576, 0, "no usable memory figure"), (None, None, "free memory"), (24_576, None, "")],
)
def test_cards_with_no_or_unknown_memory_are_unknown(
    capsys: pytest.CaptureFixture[str], profile: Callable[..., str], total: float | None, free: float | None, words: str
) -> None:
    path = profile(_gpu("NVIDIA GeForce RTX 3090", total, free))
    found = document(capsys, *QWEN, "--profile", path, code=UNKNOWN)
    assert found["verdict"] == "unknown"
    assert words in found["devices"][0]["reason"]
    assert found["shortfall_mib"]["source"] == "unknown"
    llama = document(
        capsys, *QWEN[:1], "--engine", "llama.cpp", "--weights-name", "Q8_0", "--profile", path, code=UNKNOWN
    )
    assert llama["verdict"] == "unknown"


def test_two_cards_are_never_added_up(capsys: pytest.CaptureFixture[str], profile: Callable[..., str]) -> None:
    """A base of 14 GB fits neither of two 12 GB cards; the better of two unequal ones is chosen."""
    two = profile(_gpu("NVIDIA GeForce RTX 3060", 12_288, 12_000), _gpu("NVIDIA GeForce RTX 3060", 12_288, 11_000))
    asked = ("Qwen/Qwen3-32B", "--ctx", "32K", "--kv", "f16", "--trials", "0")
    found = document(capsys, *asked, "--profile", two, code=DOES_NOT_FIT)
    assert [other["verdict"] for other in found["other_cards"]] == ["does_not_fit"]
    assert any("never added up" in note for note in found["notes"])
    unequal = profile(_gpu("NVIDIA GeForce RTX 3060", 12_288, 12_000), _gpu("NVIDIA GeForce RTX 4090", 24_564, 24_000))
    found = document(capsys, *asked, "--profile", unequal)
    assert found["devices"][0]["name"] == "NVIDIA GeForce RTX 4090"
    assert [other["verdict"] for other in found["other_cards"]] == ["does_not_fit"]
    assert run(*asked, "--profile", unequal, "--vram", "20000") == USAGE, "more than one of them has"


def test_unified_memory_is_one_pool(capsys: pytest.CaptureFixture[str], profile: Callable[..., str]) -> None:
    """A device that shares the CPU's memory adds nothing: the plan is for the RAM, once."""
    shared = _gpu("NVIDIA GB10", None, None, unified_memory=True)
    found = document(capsys, *QWEN, "--profile", profile(shared))
    assert found["plan"]["device"] == "cpu"
    assert [device["device"] for device in found["devices"]] == ["ram"]
    assert any("one pool, counted once" in note for note in found["notes"])
    small = document(capsys, *QWEN, "--profile", profile(shared, available_mib=4000), code=DOES_NOT_FIT)
    assert small["devices"][0]["free_mib"]["value"] == 4000


def test_an_integrated_gpu_is_not_added_to_a_card(
    capsys: pytest.CaptureFixture[str], profile: Callable[..., str]
) -> None:
    shared = _gpu("AMD Radeon Graphics", None, None, unified_memory=True)
    card = _gpu("NVIDIA GeForce RTX 3060", 12_288, 12_000)
    asked = ("Qwen/Qwen3-32B", "--ctx", "32K", "--kv", "f16", "--trials", "0")
    found = document(capsys, *asked, "--profile", profile(shared, card), code=DOES_NOT_FIT)
    assert found["devices"][0]["name"] == "NVIDIA GeForce RTX 3060"
    assert found["devices"][0]["free_mib"]["value"] == 12_000
    assert found["other_cards"] == []


def test_a_containers_limit_counts(capsys: pytest.CaptureFixture[str], profile: Callable[..., str]) -> None:
    found = document(capsys, *QWEN, "--profile", profile(limit_mib=3000), code=DOES_NOT_FIT)
    assert found["devices"][0]["free_mib"]["value"] == 3000
    assert "container" in found["devices"][0]["free_mib"]["by"]
    assert document(capsys, *QWEN, "--profile", profile(limit_mib=50_000))["verdict"] == "fits"
    assert document(capsys, *QWEN, "--profile", profile())["verdict"] == "fits"


def test_a_mig_slice_has_its_own_memory_and_a_share_of_the_bandwidth(
    capsys: pytest.CaptureFixture[str], profile: Callable[..., str]
) -> None:
    one = _gpu("NVIDIA A100-SXM4-40GB MIG 2g.10gb", 9984, 9900, mig="slice")
    found = document(capsys, *QWEN, "--profile", profile(one))
    assert found["devices"][0]["free_mib"]["value"] == 9900
    bandwidth = found["machine"]["cards"][0]["bandwidth_gb_s"]
    assert bandwidth["source"] == "reasoned"
    assert bandwidth["value"] == pytest.approx(1555 * 9984 / 40_960, rel=0.05)
    seven = _gpu("NVIDIA A100-SXM4-40GB MIG 2g.10gb", None, None, mig="slice")
    assert run(*QWEN, "--profile", profile(seven)) == UNKNOWN, "missing counters are unknown, not zero"


def test_a_card_alone_borrows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """No RAM, no bandwidth, no cores and no instruction set of the machine that runs the command; the needs instead."""
    found = document(capsys, "google/gemma-4-31B-it", "--card", "RTX 4090", "--ctx", "32K")
    assert found["machine"]["host"] is None
    assert [device["device"] for device in found["devices"]] == ["vram"]
    assert found["speed"]["decode_tok_s"]["source"] == "unknown"
    assert (found["plan"]["threads"], found["plan"]["cpu_isa"]) == (1, "generic")
    needs = found["host_needs"]
    assert needs["ram_mib"]["value"] > 1000
    assert "AVX" in needs["isa"]
    speeds = [needs["tok_s_at_ram_gb_s"][gb_s]["value"] for gb_s in ("35", "60", "100")]
    assert speeds == sorted(speeds)
    assert set(needs["ram_gb_s_for_tok_s"]) == {"5", "10", "20"}


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"model_type": "rwkv7", "hidden_size": 64}, UNKNOWN),
        ({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}, 1),
        ({"hidden_size": 64}, 1),
    ],
)
def test_a_model_without_layer_facts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, config: dict[str, object], code: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    assert run(str(tmp_path), "--card", "RTX 4090") == code
    assert "Traceback" not in capsys.readouterr().err


def test_k_and_v_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """With and without a search; below the floor either is refused."""
    asked = ("google/gemma-4-31B-it", "--card", "RTX 5090", "--ctx", "32K", "--kv", "f16", "--kv-v", "q8_0")
    for trials in ("0", "20"):
        found = document(capsys, *asked, "--trials", trials)
        assert (found["plan"]["k_type"], found["plan"]["v_type"]) == ("f16", "q8_0")
        # 10 full layers × 4 heads × 512: K in 2 bytes, V in 34/32.
        expected = 32768 * 10 * 4 * 512 * (2 + 34 / 32) / 2**20
        assert found["memory"]["vram"]["kv_mib"]["value"] == pytest.approx(expected, abs=0.01)
    assert run(*asked[:-1], "q4_0") == USAGE
    assert run(*asked[:-1], "q9") == USAGE


def test_a_vision_projector_belongs_to_llama_cpp(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QWEN[:1], "--card", "RTX 4090", "--mmproj-mib", "900") == USAGE
    asked = ("Qwen/Qwen3.8-27B", "--engine", "llama.cpp", "--weights-name", "Q4_K_M", "--card", "RTX 4090")
    found = document(capsys, *asked, "--mmproj-mib", "928")
    assert found["memory"]["vram"]["vision_projector_mib"]["value"] == 928
    assert run(*asked, "--mmproj-mib", "0") == USAGE
