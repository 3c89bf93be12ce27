"""Errors that a person can act on: what happened, what was found against what is needed, and a command to run.

Every error that twofold raises on purpose for a person's input or machine is a `TwofoldError`; the command line prints
its parts and exits with `exit_code`. Anything else is a defect and keeps its traceback.
"""

from __future__ import annotations


class TwofoldError(Exception):
    """A failure with an explanation.

    Args:
        what: one sentence without a full stop: what happened, to which file, model or option.
        found: what there is (with unit), where a comparison explains the failure.
        needed: what there should be (with unit).
        hint: a command or an action that helps.
    """

    exit_code = 1

    def __init__(
        self, what: str, *, found: str | None = None, needed: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.found = found
        self.needed = needed
        self.hint = hint


class Declined(TwofoldError):
    """A person answered no; `what` says what was left as it was."""


class InvalidOption(TwofoldError):
    """A value on the command line or in the configuration that cannot be used."""

    exit_code = 2


class ModelNotFound(TwofoldError):
    """The model does not exist, is gated, or cannot be reached (offline)."""


class CorruptFile(TwofoldError):
    """A file is truncated, damaged, or not of the format that it claims."""


class UnsupportedModel(TwofoldError):
    """The model's architecture or format is not one that the requested operation understands."""


class UnsafeFile(TwofoldError):
    """A file that would run code when loaded (pickle)."""


class NotEnoughSpace(TwofoldError):
    """Too little disk, RAM or VRAM for the operation."""


class InvalidProfile(TwofoldError):
    """A profile, plan or observation file that does not follow its schema."""


class InvalidCalibration(TwofoldError):
    """Calibration text that cannot be used."""


class Busy(TwofoldError):
    """Another process holds the resource."""


class EngineUnavailable(TwofoldError):
    """The engine cannot run here (no native module, unsupported platform)."""


class ContextFull(TwofoldError):
    """The conversation does not fit the planned context."""


class EngineFailed(TwofoldError):
    """The engine computed something that cannot be right (logits that are not finite)."""


class UnsafeToShare(TwofoldError):
    """Something that identifies a person or machine would have left the machine."""
