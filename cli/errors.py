"""From exceptions to messages and exit codes.

Exit codes: 0 ok, 1 failed for a reason that the user can fix, 2 usage, 130 interrupted, and `fit`'s own (3 tight, 4
does not fit, 5 unknown). Known exceptions print what happened, found against needed, and a hint; an unknown one is a
defect: one line, and the traceback with `TWOFOLD_DEBUG=1`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from twofold.cli.output import err
from twofold.profiles.errors import EngineUnavailable, NotEnoughSpace, TwofoldError

INTERRUPTED = 130
DEFECT = 70


def _no_space(error: OSError) -> TwofoldError:
    place = f" at {error.filename}" if error.filename else ""
    return NotEnoughSpace(f"the disk is full{place}", hint="free some space, or set TWOFOLD_HOME to a larger disk")


def _native_missing(error: Exception) -> TwofoldError:
    from twofold.kernels.cpu import HOW_TO_BUILD

    return EngineUnavailable(f"the native module is missing: {error}", hint=HOW_TO_BUILD)


def _from_os(error: OSError) -> TwofoldError | None:
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _no_space(error)
    if error.errno in (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.EROFS):
        return TwofoldError(f"{error.strerror}: {error.filename}")
    return None


def explain(error: Exception) -> TwofoldError | None:
    """The error as something to act on, or None for a defect."""
    if isinstance(error, TwofoldError):
        return error
    if isinstance(error, OSError):
        return _from_os(error)
    if type(error).__name__ == "NativeMissing":
        return _native_missing(error)
    if isinstance(error, MemoryError):
        return NotEnoughSpace("out of memory", hint="close other programs, or choose a smaller model or context")
    return None


def run_app(invoke: Callable[[], None] | None = None) -> int:
    """Run the command line and turn whatever happens into an exit code."""
    try:
        if invoke is None:
            from twofold.cli.app import build_app

            build_app()()
        else:
            invoke()
        return 0
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # Typer turns Ctrl-C into this, and says nothing
            err().line("interrupted")
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except KeyboardInterrupt:
        err().line("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`| head`): not an error. Keep the interpreter from flushing into the void.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last line of defence: a defect too gets one line
        if os.environ.get("TWOFOLD_DEBUG") == "1":
            traceback.print_exc()
        known = explain(error)
        if known is None:
            err().error(
                TwofoldError(
                    f"unexpected {type(error).__name__}: {error}",
                    hint="run again with TWOFOLD_DEBUG=1 and report the traceback",
                )
            )
            return DEFECT
        err().error(known)
        return known.exit_code
