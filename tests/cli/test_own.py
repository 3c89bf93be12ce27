"""Whose figures count: what was measured here comes first, an imported or old profile is advice and says so."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.cli.own import STALE_DAYS, advice_notes, key_of, own_runs, stale_notes
from twofold.cli.version import package_version
from twofold.probes import probe
from twofold.profiles.export import document_of, to_bytes
from twofold.profiles.figures import measured
from twofold.profiles.hardware import HardwareProfile, ObservedRun
from twofold.profiles.session_store import SessionRecord, add_session
from twofold.profiles.store import save_imported, save_own

MACHINE = Path(__file__).parents[1] / "profiles" / "data" / "machine.json"
TODAY = datetime.date.today()


def _other() -> HardwareProfile:
    return HardwareProfile.model_validate_json(MACHINE.read_bytes())


@pytest.fixture(scope="module")
def here() -> HardwareProfile:
    return probe(bandwidth=False)


def _fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    run_app(lambda: build_app()(["fit", "smollm2", *arguments, "--format", "json"]))
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_profile_says_how_old_it_is_and_who_made_it() -> None:
    profile = _other()
    tool = profile.tool.model_copy(update={"version": package_version()})
    fresh = profile.model_copy(update={"captured_on": TODAY, "tool": tool})
    (note,) = advice_notes(fresh)
    assert "today" in note and package_version() in note
    other = profile.tool.model_copy(update={"version": "0.0.7"})
    day = TODAY - datetime.timedelta(days=STALE_DAYS + 1)
    old = profile.model_copy(update={"captured_on": day, "tool": other})
    notes = " ".join(advice_notes(old))
    assert f"{STALE_DAYS + 1} days ago" in notes and "another build" in notes and "days old" in notes
    (future, *_) = advice_notes(profile.model_copy(update={"captured_on": TODAY + datetime.timedelta(days=3)}))
    assert "still to come" in future


def test_fit_for_a_profile_repeats_it(capsys: pytest.CaptureFixture[str]) -> None:
    save_imported(_other(), "friend")
    notes = " ".join(_fit(capsys, "--profile", "friend")["notes"])
    assert "an imported profile is advice" in notes and "captured on 2026-11-02" in notes


def test_an_old_probe_is_said_to_be_old_and_another_machines_is_not_used(
    here: HardwareProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    read = measured(77.0, "GB/s", "test", n=3, spread=0.1)
    mine = here.model_copy(update={"ram": here.ram.model_copy(update={"read_gb_s_all_cores": read})})
    assert stale_notes(None, here) == [] and stale_notes(mine, here) == []
    old = mine.model_copy(update={"captured_on": TODAY - datetime.timedelta(days=STALE_DAYS + 1)})
    (note,) = stale_notes(old, here)
    assert "twofold probe" in note
    save_own(mine)
    assert _fit(capsys)["machine"]["host"]["ram_read_gb_s"]["value"] == 77.0
    cpu = mine.cpu.model_copy(update={"model": _other().cpu.model})
    save_own(mine.model_copy(update={"cpu": cpu}))  # a home folder that two machines share
    found = _fit(capsys)
    assert found["machine"]["host"]["ram_read_gb_s"]["value"] != 77.0
    assert any("other hardware" in note for note in found["notes"])


def _session(here: HardwareProfile, **changes: Any) -> SessionRecord:
    from twofold.cli.version import commit

    fields: dict[str, Any] = {
        "command": "chat", "ending": "end", "day": TODAY, "machine": key_of(here), "cpu": "x", "model": "smollm2",
        "vocab_size": 49152, "n_parameters": 1 << 27, "weights_bytes": 1 << 27, "residual_bits": 6,
        "context_tokens": 8192, "k_type": "f16", "v_type": "f16", "draft_nodes": 0, "draft_depth": 0,
        "prefill_chunk": 64, "threads": 2, "isa": "avx2", "build": commit(), "version": package_version(),
        "planned_mib": 500.0, "process_mib": 123.0, "answers": 1, "decode": {"tok_s": 38.2, "tokens": 40},
    }  # fmt: skip
    return SessionRecord(**(fields | changes))


def test_sessions_of_another_machine_are_not_own(here: HardwareProfile) -> None:
    add_session(_session(here))
    add_session(_session(here, machine="f" * 32))
    assert [one.machine for one in own_runs(here).sessions] == [key_of(here)]


def test_what_this_machine_cannot_have_observed_is_ignored(
    here: HardwareProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    first = _fit(capsys)
    plan = first["plan"]
    wanted = {"isa": plan["cpu_isa"], "threads": plan["threads"], "residual_bits": plan["residual_bits"]}
    more = here.ram.total_mib.number * 2
    for peaks in ({"process_mib": more, "peak_mib": more}, {"process_mib": 0.0, "peak_mib": 0.0}):
        add_session(_session(here, **wanted, **peaks))
    assert own_runs(here).sessions == ()
    seen = _fit(capsys)
    assert seen["verdict"] == first["verdict"]
    assert seen["memory"]["ram"]["process_mib"]["source"] == "reasoned"


def test_identical_hardware_is_found_among_imported_profiles(here: HardwareProfile) -> None:
    run = ObservedRun.model_validate_json(json.dumps(json.loads(MACHINE.read_text())["observed"][0]))
    save_imported(here.model_copy(update={"observed": (run,)}), "twin")
    save_imported(_other(), "stranger")
    assert own_runs(here).shared == (("twin", run),)


def test_an_imported_profile_never_outranks_what_was_measured_here(
    here: HardwareProfile, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _fit(capsys)
    plan = first["plan"]
    wanted = {"isa": plan["cpu_isa"], "threads": plan["threads"], "residual_bits": plan["residual_bits"]}
    fast = measured(999.0, "tok/s", "session", n=5, spread=1.0)
    run = ObservedRun(
        model="smollm2", residual_bits=plan["residual_bits"], context_tokens=8192, kv_type=plan["k_type"],
        draft_nodes=0, memory_peak_mib=measured(1.0, "MiB", "x"), decode_tok_s=fast,
        tokens_per_check=measured(1.0, "tokens", "x"),
    )  # fmt: skip
    save_imported(here.model_copy(update={"observed": (run,)}), "twin")
    seen = _fit(capsys)
    assert (seen["observed"]["decode_tok_s"]["value"], seen["observed"]["decode_tok_s"]["source"]) == (
        999.0,
        "reported",
    )
    assert seen["memory"]["ram"]["process_mib"]["source"] == "reasoned"
    assert seen["verdict"] == first["verdict"]
    add_session(_session(here, **wanted))
    seen = _fit(capsys)
    speed = seen["observed"]["decode_tok_s"]
    assert (speed["value"], speed["source"]) == (38.2, "measured")
    assert seen["memory"]["ram"]["process_mib"]["source"] == "measured"
    assert first["observed"] is None
    # and a profile that is asked for is answered from that profile alone
    assert _fit(capsys, "--profile", "twin")["observed"] is None


def test_a_stored_profile_survives_the_newer_schema(here: HardwareProfile) -> None:
    data = to_bytes(document_of(here))
    assert HardwareProfile.model_validate_json(data) == here


def test_sessions_of_a_checkpoint_are_seen_whatever_its_folder_is_called(
    here: HardwareProfile, capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    from twofold.engine.checkpoint.config import CheckpointConfig
    from twofold.profiles.rank_store import rank_key
    from twofold.profiles.settings import checkpoints_dir

    folder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "g0"))
    made = json.loads((folder / "config.json").read_text())["quantization_config"]
    key = rank_key(CheckpointConfig.from_json(made).to_json())

    def fit(model: str, *arguments: str) -> dict[str, Any]:
        run_app(lambda: build_app()(["fit", model, *arguments, "--format", "json"]))
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    first = fit(str(folder))
    plan = first["plan"]
    wanted = {name: plan[name] for name in ("threads", "residual_bits", "k_type", "v_type")}
    wanted |= {"isa": plan["cpu_isa"], "checkpoint": key, "model": "tiny", "vocab_size": 258}
    assert first["observed"] is None
    add_session(_session(here, **wanted))
    seen = fit(str(folder))
    assert seen["observed"]["decode_tok_s"]["value"] == 38.2
    assert seen["memory"]["ram"]["process_mib"]["source"] == "measured"
    # and the other way: the model whose checkpoint it is, where that ran under its folder's name
    shutil.copytree(tiny_checkpoint, checkpoints_dir() / "smollm2-r6-s0")
    plan = fit("smollm2", "--residual-bits", "6")["plan"]
    wanted = {name: plan[name] for name in ("threads", "residual_bits", "k_type", "v_type")}
    add_session(_session(here, **wanted, isa=plan["cpu_isa"], checkpoint=key, model="g0", decode={"tok_s": 21.0}))
    assert fit("smollm2", "--residual-bits", "6")["observed"] is not None
