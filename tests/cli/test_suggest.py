"""The model that is suggested after the self-test: it fits, and what was found is kept while it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.planner.machine import MachineBudget


def test_the_suggested_model_fits_runs_and_chats_here(isolated_home: Path) -> None:
    from twofold.cli.suggest import suggest_model
    from twofold.profiles.readers.shipped import is_chat_model, shipped_ids, shipped_spec

    found = suggest_model()
    if found is not None:
        spec = shipped_spec(found)
        assert found in shipped_ids() and is_chat_model(found) and spec is not None
        assert spec.runnable_reason is None and spec.n_decoder_weights >= 1e9
    kept = isolated_home / "state" / "suggestion.json"
    assert json.loads(kept.read_text())["model"] == found


@pytest.fixture
def steady_machine(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> MachineBudget:
    """This machine as it is now: what other programs take from it meanwhile is not seen."""
    from twofold.cli import fit_options

    machine = fit_options.local_machine()
    monkeypatch.setattr(fit_options, "local_machine", lambda: machine)
    return machine


def test_a_suggestion_is_kept(isolated_home: Path, steady_machine: MachineBudget) -> None:
    from twofold.cli.suggest import suggest_model

    found, kept = suggest_model(), isolated_home / "state" / "suggestion.json"
    document = json.loads(kept.read_text()) | {"model": "org/kept"}
    kept.write_text(json.dumps(document))
    assert suggest_model() == "org/kept"
    for broken in (json.dumps(document | {"key": ""}), "{", "[]", json.dumps({"key": document["key"]})):
        kept.write_text(broken)
        assert suggest_model() == found


@pytest.mark.parametrize(("moved_mib", "is_kept"), [(-1000, True), (1000, True), (-1100, False), (1100, False)])
def test_a_suggestion_outlives_what_other_programs_take(
    isolated_home: Path, steady_machine: MachineBudget, monkeypatch: pytest.MonkeyPatch, moved_mib: int, is_kept: bool
) -> None:
    from twofold.cli import fit_options
    from twofold.cli.suggest import suggest_model

    suggest_model()
    kept = isolated_home / "state" / "suggestion.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"model": "org/kept"}))
    host = steady_machine.host
    assert host is not None
    free = replace(host.available_mib, value=int(host.available_mib.number) + moved_mib)
    moved = replace(steady_machine, host=replace(host, available_mib=free))
    monkeypatch.setattr(fit_options, "local_machine", lambda: moved)
    assert (suggest_model() == "org/kept") is is_kept


def test_a_probe_makes_the_suggestion_anew(isolated_home: Path) -> None:
    from twofold.cli.suggest import suggest_model
    from twofold.probes import probe
    from twofold.profiles.figures import measured
    from twofold.profiles.store import save_own

    here = probe(bandwidth=False)
    keys = []
    for gb_s in (0.5, 900.0):
        speed = measured(gb_s, "GB/s", "test", n=1)
        ram = here.ram.model_copy(update={"read_gb_s_one_thread": speed, "read_gb_s_all_cores": speed})
        save_own(here.model_copy(update={"ram": ram}))
        assert gb_s > 1 or suggest_model() is None
        suggest_model()
        keys.append(json.loads((isolated_home / "state" / "suggestion.json").read_text())["key"])
    assert keys[0] != keys[1]
