"""Which real model to try on this machine, for a person who has only seen the self-test."""

from __future__ import annotations

import contextlib
import json
import os

from twofold.profiles.errors import TwofoldError

LEAST_WEIGHTS = 1_000_000_000
"""Smaller models do not count as real ones here."""


def suggest_model() -> str | None:
    """The best known model that fits this machine and that this version runs; None when there is none.

    The answer is kept in the state folder for as long as memory and cores stay the same, since ranking takes a while.
    """
    import psutil

    from twofold.profiles.files import write_atomically
    from twofold.profiles.settings import state_dir

    file = state_dir() / "suggestion.json"
    machine = {"ram_bytes": psutil.virtual_memory().total, "cores": os.cpu_count()}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known = json.loads(file.read_text(encoding="utf-8"))
        if known.get("machine") == machine and isinstance(known.get("model"), str | None):
            model: str | None = known.get("model")
            return model
    try:
        found = _best()
    except TwofoldError:
        return None
    with contextlib.suppress(OSError):
        write_atomically(file, json.dumps({"machine": machine, "model": found}) + "\n", mode=0o600)
    return found


def _best() -> str | None:
    from twofold.cli.fit_options import build_request, local_machine
    from twofold.planner.rank import rank_models
    from twofold.profiles.readers.shipped import shipped_specs

    request, _ = build_request(None, None, None, None, None)
    specs = [spec for spec in shipped_specs() if spec.n_decoder_weights >= LEAST_WEIGHTS]
    rows = rank_models(specs, local_machine(), request)
    return next((row.model for row in rows if row.runnable and row.verdict == "fits"), None)
