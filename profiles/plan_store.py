"""Plans that were tuned on this machine: in the state folder, one small file per model, context, cache and activations
that were asked for.

A plan is worth something only where it was measured: the file names the processor, its cores, the instruction set and
the native build. One that was tuned elsewhere, or with another build, is stale: it is reported and not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twofold.profiles.activations import Activations
from twofold.profiles.files import write_atomically
from twofold.profiles.settings import state_dir

SCHEMA_VERSION = 1
MAX_FILES = 128
ANY_CACHE = "any"
"""No cache type was asked for on the command line or in the settings."""
MACHINE = ("cpu", "cores", "isa", "build")
_MAX_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class TunedPlan:
    """A tuned plan and what it holds for.

    Attributes:
        model_key: the checkpoint, by how it was made.
        kv: the cache type that was asked for, or `ANY_CACHE`.
        activations: how products round them.
        machine: what of the machine decides times, by the names in `MACHINE`.
        day: when it was tuned.
        plan: the plan as JSON.
    """

    model_key: str
    context_tokens: int
    kv: str
    activations: Activations
    machine: Mapping[str, str]
    day: str
    plan: Mapping[str, Any]

    def differences(self, machine: Mapping[str, str]) -> list[str]:
        """What differs here from where it was tuned; empty where it holds."""
        return [
            f"{name} {machine.get(name, 'unknown')}, tuned with {self.machine.get(name, 'unknown')}"
            for name in MACHINE
            if machine.get(name) != self.machine.get(name)
        ]


def tuned_dir() -> Path:
    """The folder of the files."""
    return state_dir() / "tuned"


def tuned_path(model_key: str, context_tokens: int, kv: str, activations: Activations) -> Path:
    """Where the plan for these lies, if there is one."""
    digest = hashlib.sha256(repr((model_key, context_tokens, kv, activations)).encode()).hexdigest()[:32]
    return tuned_dir() / f"{digest}.json"


def save_tuned(tuned: TunedPlan) -> Path:
    """Keep a plan in the place of an older one.

    Raises:
        OSError: it cannot be written.
    """
    path = tuned_path(tuned.model_key, tuned.context_tokens, tuned.kv, tuned.activations)
    document = {"schema_version": SCHEMA_VERSION, **asdict(tuned)}
    write_atomically(path, json.dumps(document, indent=2) + "\n", mode=0o600)
    files = sorted(tuned_dir().glob("*.json"), key=lambda one: one.stat().st_mtime)
    for old in files[: max(0, len(files) - MAX_FILES)]:
        old.unlink(missing_ok=True)
    return path


def read_tuned(model_key: str, context_tokens: int, kv: str, activations: Activations) -> TunedPlan | None:
    """The plan that was kept, stale or not; None where there is none, or none that can be read."""
    asked = (model_key, context_tokens, kv, activations)
    path = tuned_path(*asked)
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        document = json.loads(path.read_text("utf-8"))
        if document.pop("schema_version") != SCHEMA_VERSION:
            return None
        tuned = TunedPlan(**document)
        is_whole = isinstance(tuned.plan, dict) and isinstance(tuned.day, str) and len(tuned.day) <= 32
        is_whole = is_whole and isinstance(tuned.machine, dict) and set(tuned.machine) == set(MACHINE)
        is_whole = is_whole and all(isinstance(value, str) and len(value) <= 200 for value in tuned.machine.values())
        same = (tuned.model_key, tuned.context_tokens, tuned.kv, tuned.activations) == asked
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return tuned if is_whole and same else None
