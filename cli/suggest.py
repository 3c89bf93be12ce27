"""Which real model to try on this machine, for a person who has only seen the self-test."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING

from twofold.profiles.errors import TwofoldError

if TYPE_CHECKING:
    from twofold.planner.machine import MachineBudget
    from twofold.planner.request import Request

LEAST_WEIGHTS = 1_000_000_000
"""Smaller models do not count as real ones here."""
_STEP_MIB = 1024
"""Free memory is taken in whole steps: what comes and goes from one minute to the next decides nothing."""


def suggest_model() -> str | None:
    """The best known chat model that fits this machine, that this version runs, and that answers in bearable time;
    None when there is none, or no speed is known.

    The answer is kept in the state folder, since ranking takes a while, under a digest of all that it depends on: this
    build, the request with its settings, memory, and speeds as the last probe and kernel timings left them.
    """
    from twofold.cli.fit_options import build_request, local_machine
    from twofold.profiles.files import write_atomically
    from twofold.profiles.settings import state_dir

    try:
        request, _ = build_request(None, None, None, None, None)
        machine = _steady(local_machine())
    except TwofoldError:
        return None
    file, key = state_dir() / "suggestion.json", _key(machine, request)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known = json.loads(file.read_text(encoding="utf-8"))
        if known.get("key") == key and isinstance(known.get("model"), str | None):
            model: str | None = known.get("model")
            return model
    try:
        found = _best(machine, request)
    except TwofoldError:
        return None
    with contextlib.suppress(OSError):
        write_atomically(file, json.dumps({"key": key, "model": found}) + "\n", mode=0o600)
    return found


def _steady(machine: MachineBudget) -> MachineBudget:
    """`machine` without what changes all the time: odd MiB of free memory, own sessions, notes."""
    from dataclasses import replace

    host = machine.host
    if host is None:
        return replace(machine, notes=())
    free = host.available_mib
    if free.is_number:
        free = replace(free, value=int(free.number) // _STEP_MIB * _STEP_MIB, low=None, high=None)
    return replace(machine, notes=(), host=replace(host, available_mib=free, own=None))


def _key(machine: MachineBudget, request: Request) -> str:
    from twofold.cli.version import commit, package_version
    from twofold.planner.rank import CHAT_FIRST_TOKEN_S, CHAT_TOK_S
    from twofold.profiles.readers.shipped import shipped_ids

    build = (package_version(), commit(), shipped_ids(), LEAST_WEIGHTS, CHAT_TOK_S, CHAT_FIRST_TOKEN_S)
    timings = machine.host.kernels.timings if machine.host is not None and machine.host.kernels is not None else ()
    return hashlib.sha256(repr((build, request, machine.to_json(), machine.cards, timings)).encode()).hexdigest()[:32]


def _best(machine: MachineBudget, request: Request) -> str | None:
    from twofold.planner.rank import rank_models, recommended
    from twofold.profiles.readers.shipped import shipped_specs

    specs = [spec for spec in shipped_specs() if spec.n_decoder_weights >= LEAST_WEIGHTS]
    found = recommended(rank_models(specs, machine, request))
    return found.model if found is not None else None
