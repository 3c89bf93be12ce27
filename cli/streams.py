"""The three standard streams, however they were left by whoever started the program."""

from __future__ import annotations

import contextlib
import os
import sys

from twofold.profiles.errors import TwofoldError

UNWRITTEN = 1


def mend_streams() -> None:
    """Give a stream that was closed before the start (`>&-`) something to hold its place.

    A file that is opened later would otherwise get its descriptor, and messages would be written into that file.
    Writing to a closed standard output stays an error; messages to a closed standard error go nowhere.
    """
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def unwritten(error: OSError) -> TwofoldError:
    """Output that went nowhere, in words."""
    return TwofoldError(
        f"standard output cannot be written: {error.strerror}", hint="check where the output goes (> or |)"
    )


def output_failure() -> TwofoldError | None:
    """Why standard output cannot be written, None where it can: what is left in its buffer is tried again."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return unwritten(error)
    except ValueError:
        return TwofoldError("standard output is closed")
    return None


def settle_streams(code: int) -> int:
    """Flush the streams while a failure can still be told, and keep the interpreter from failing at it again.

    Returns:
        The exit code: `code`, or 1 for output that was lost by a command that was otherwise done.
    """
    from twofold.cli.output import err

    failure = output_failure()
    if failure is not None:
        if code == 0:
            err().error(failure)
            code = UNWRITTEN
        _point_at_nothing(1)
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _point_at_nothing(2)
    return code


def _point_at_nothing(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
