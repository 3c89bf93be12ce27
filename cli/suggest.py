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
    from twofold.profiles.figures import Figure

LEAST_WEIGHTS = 1_000_000_000
"""Smaller models do not count as real ones here."""
_HOST_SLACK_MIB = 1024
_CARD_SLACK_MIB = 256
"""How far free memory may move before the ranking is made again. As much less than is free is planned with, so the
answer fits until then."""


def suggest_model() -> str | None:
    """The best known chat model that fits this machine, that this version runs, and that answers in bearable time;
    None when there is none, or no speed is known.

    The answer is kept in the state folder, since ranking takes a while, with the free memory of then and a digest of
    all else that it depends on: this build, the request with its settings, and speeds as the last probe and kernel
    timings left them.
    """
    from twofold.cli.fit_options import build_request, local_machine
    from twofold.profiles.files import write_atomically
    from twofold.profiles.settings import state_dir

    try:
        request, _ = build_request(None, None, None, None, None)
        machine = local_machine()
    except TwofoldError:
        return None
    free_mib, slacks_mib = _free_mib(machine), _slacks_mib(machine)
    file = state_dir() / "suggestion.json"
    key = _key(_steady(machine, [None if free is None else 0 for free in free_mib]), request)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(file.read_text(encoding="utf-8"))
        is_same = known["key"] == key and _is_near(free_mib, known["free_mib"], slacks_mib)
        if is_same and isinstance(known["model"], str | None):
            model: str | None = known["model"]
            return model
    try:
        less = [None if free is None else free - slack for free, slack in zip(free_mib, slacks_mib, strict=True)]
        found = _best(_steady(machine, less), request)
    except TwofoldError:
        return None
    with contextlib.suppress(OSError):
        write_atomically(file, json.dumps({"key": key, "free_mib": free_mib, "model": found}) + "\n", mode=0o600)
    return found


def _free_mib(machine: MachineBudget) -> list[float | None]:
    """Free memory of each card, then of the host; None where that is unknown."""
    figures = [card.free_mib for card in machine.cards]
    figures += [machine.host.available_mib] if machine.host is not None else []
    return [figure.number if figure.is_number else None for figure in figures]


def _slacks_mib(machine: MachineBudget) -> list[int]:
    return [_CARD_SLACK_MIB] * len(machine.cards) + [_HOST_SLACK_MIB] * (machine.host is not None)


def _is_near(now: list[float | None], then: list[float | None], slacks_mib: list[int]) -> bool:
    pairs = zip(now, then, slacks_mib, strict=True)
    return all(
        one is other if one is None or other is None else abs(one - other) <= slack for one, other, slack in pairs
    )


def _steady(machine: MachineBudget, free_mib: list[float | None]) -> MachineBudget:
    """`machine` with this free memory where it is known, and without what changes all the time: own sessions, notes."""
    from dataclasses import replace

    def stated(figure: Figure, value: float | None) -> Figure:
        return figure if value is None else replace(figure, value=max(0, int(value)), low=None, high=None)

    n_cards, host = len(machine.cards), machine.host
    cards = tuple(
        replace(card, free_mib=stated(card.free_mib, value))
        for card, value in zip(machine.cards, free_mib[:n_cards], strict=True)
    )
    if host is not None:
        host = replace(host, available_mib=stated(host.available_mib, free_mib[n_cards]), own=None)
    return replace(machine, cards=cards, host=host, notes=())


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
