"""What this user's own sessions observed on this machine: memory, speed, and the plan they ran under.

One JSON line a session in the state folder, the newest last, so that the next plan is better. Nothing in it says what
was talked about, or when within a day. A line that is damaged, or of another schema, counts for nothing.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twofold.profiles.activations import USUAL, Activations
from twofold.profiles.bounds import MAX_MIB, Text
from twofold.profiles.errors import TwofoldError
from twofold.profiles.figures import Figure
from twofold.profiles.files import write_atomically
from twofold.profiles.locks import exclusive
from twofold.profiles.settings import state_dir
from twofold.profiles.text import one_line

SCHEMA_VERSION = 1
MAX_SESSIONS = 256
"""The newest are kept."""
MAX_BYTES = 2 << 20
MAX_LINE = 16 << 10
LEAST_PROCESS_MIB = 4.0
"""An interpreter alone takes more."""
_LOCK_SECONDS = 2.0
_KEY = r"[0-9a-f]{16,64}"

Mib = Annotated[float, Field(ge=0, le=MAX_MIB)]
Rate = Annotated[float, Field(gt=0, le=1e7)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]
Size = Annotated[int, Field(ge=0, le=1 << 50)]
Number = Annotated[int, Field(ge=0, le=1 << 40)]
Sizes = Annotated[dict[Text, Size], Field(max_length=64)]
Key = Annotated[str, Field(pattern=f"^{_KEY}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Speed(_Part):
    """A rate with how many samples it stands on and their spread (interquartile range; None for one)."""

    tok_s: Rate
    n: Annotated[int, Field(ge=1, le=1_000_000_000)] = 1
    spread: Annotated[float, Field(ge=0, le=1e7)] | None = None
    tokens: Number = 0


class SessionRecord(_Part):
    """One session.

    Attributes:
        machine: `machine_key` of the hardware; `checkpoint`: how the model was made. Neither is ever exported.
        model: a name, never a path.
        isa, build, version: the kernels' tier, the native module's commit, the package: another of them is advice.
        planned, allocated: bytes per component, as the plan counted and as the engine reserved.
        peak_mib: the process's highest resident set after the model was opened, mapped weights included: what
            `planned_mib` counts. None where a command opens several engines, or the system does not tell.
        process_mib: the part of that peak which is neither weights nor the engine's arrays.
        filled_tokens: the longest text that the cache held.
        decode, prefill: None where too little was computed.
    """

    schema_version: Literal[1] = 1
    command: Literal["chat", "run", "bench"]
    ending: Literal["end", "interrupted"]
    day: datetime.date
    machine: Key
    cpu: Text
    cores: Annotated[int, Field(ge=1, le=65536)] | None = None
    checkpoint: Key | None = None
    model: Text
    vocab_size: Number
    n_parameters: Number
    weights_bytes: Size
    residual_bits: Annotated[int, Field(ge=4, le=8)]
    context_tokens: Annotated[int, Field(ge=1, le=1 << 31)]
    k_type: Literal["f16", "q8_0", "q4_0"]
    v_type: Literal["f16", "q8_0", "q4_0"]
    activations: Activations = USUAL
    draft_nodes: Annotated[int, Field(ge=0, le=4096)]
    draft_depth: Annotated[int, Field(ge=0, le=4096)]
    lookup_nodes: Annotated[int, Field(ge=0, le=4096)] = 0
    prefill_chunk: Annotated[int, Field(ge=1, le=65536)]
    threads: Annotated[int, Field(ge=1, le=4096)]
    isa: Text
    build: Text
    version: Text
    planned_mib: Mib
    planned: Sizes = {}
    allocated: Sizes = {}
    peak_mib: Mib | None = None
    process_mib: Mib | None = None
    filled_tokens: Number = 0
    answers: Number = 0
    checks: Number = 0
    decode: Speed | None = None
    prefill: Speed | None = None
    tokens_per_check: Annotated[float, Field(ge=0, le=4096)] | None = None
    first_token_s: Seconds | None = None
    major_faults: Number | None = None
    reread_steps: Number = 0

    @property
    def kv(self) -> tuple[str, str]:
        return self.k_type, self.v_type


def sessions_path() -> Path:
    """The file of all sessions."""
    return state_dir() / "sessions.jsonl"


def machine_key(cpu: Figure, logical_cores: Figure, ram_total_mib: Figure) -> str:
    """Equal for equal hardware (processor, logical cores, GiB): a home folder may serve several machines."""
    ram = round(ram_total_mib.number / 1024) if ram_total_mib.is_number else None
    return hashlib.sha256(repr((cpu.value, logical_cores.value, ram)).encode()).hexdigest()[:32]


def model_name(text: str) -> str:
    """A model's name without the folders that it lies in: at most `org/name`, one line, never empty.

    An absolute or relative path, of whatever platform, leaves its last part alone.
    """
    plain = one_line(text, 200).strip()
    parts = [part for part in re.split(r"[/\\]+", plain) if part]
    is_name = re.fullmatch(r"[\w.-]+(/[\w.-]+)?(@[\w.-]+)?", plain) and not plain.startswith((".", "~"))
    if is_name:
        return plain
    return re.sub(r"^(?:[A-Za-z]:|~.*|\.+)$", "", parts[-1] if parts else "") or "unnamed"


def read_sessions() -> tuple[SessionRecord, ...]:
    """All sessions, the oldest first; nothing where there is no file, or none that can be used."""
    path = sessions_path()
    try:
        if path.stat().st_size > MAX_BYTES:
            return ()
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return ()
    return tuple(found for line in lines if (found := _record(line)) is not None)


def _record(line: bytes) -> SessionRecord | None:
    if not line.strip() or len(line) > MAX_LINE:
        return None
    try:
        return SessionRecord.model_validate_json(line, strict=True)
    except ValidationError:
        return None


def is_possible(record: SessionRecord, ram_total_mib: Figure) -> bool:
    """Whether a machine of so much RAM can have observed these peaks: something, and not more than there is."""
    most = ram_total_mib.number if ram_total_mib.is_number else MAX_MIB
    peaks = [part for part in (record.process_mib, record.peak_mib) if part is not None]
    if any(not LEAST_PROCESS_MIB <= part <= most for part in peaks):
        return False
    return len(peaks) < 2 or peaks[0] <= peaks[1] + 1


def add_session(record: SessionRecord) -> bool:
    """Append a session; whether that was possible.

    The file is written whole, readable by its owner only. An observation is not worth an error: a full disk or a busy
    lock loses it.
    """
    path = sessions_path()
    try:
        with exclusive(path.with_suffix(".lock"), "keeping what a session observed", wait_seconds=_LOCK_SECONDS):
            kept = (*read_sessions(), record)[-MAX_SESSIONS:]
            write_atomically(path, _lines(kept), mode=0o600)
    except (OSError, TwofoldError):
        return False
    return True


def _lines(records: Iterable[SessionRecord]) -> str:
    return "".join(record.model_dump_json(exclude_none=True) + "\n" for record in records)
