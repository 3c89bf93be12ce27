"""From exceptions to messages and exit codes.

Exit codes: 0 ok, 1 failed for a reason that the user can fix, 2 usage, 130 interrupted, and `fit`'s own (3 tight, 4
does not fit, 5 unknown). Known exceptions print what happened, found against needed, and a hint; an unknown one is a
defect: one line, and the traceback with `TWOFOLD_DEBUG=1`.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

from twofold.cli.output import STDOUT, err
from twofold.cli.signals import stop_signals
from twofold.cli.streams import mend_streams, output_failure, settle_streams, unwritten
from twofold.profiles.errors import EngineUnavailable, NotEnoughSpace, TwofoldError
from twofold.profiles.text import one_line

INTERRUPTED = 130
DEFECT = 70
READER_LEFT = 141


def _no_space(error: OSError) -> TwofoldError:
    name = "" if error.filename is None else str(error.filename)
    elsewhere = "set TWOFOLD_HOME to a larger disk" if not name or _is_own(name) else "name a place on another disk"
    return NotEnoughSpace(f"the disk is full{f' at {name}' if name else ''}", hint=f"free some space, or {elsewhere}")


def _is_own(name: str) -> bool:
    """Whether a path is below the folders that twofold keeps things in."""
    from twofold.profiles.settings import cache_dir, data_dir, state_dir

    return any(name.startswith(str(place)) for place in (cache_dir(), data_dir(), state_dir()))


def _native_missing(error: Exception) -> TwofoldError:
    from twofold.kernels.cpu import HOW_TO_BUILD

    return EngineUnavailable(f"the native module is missing: {error}", hint=HOW_TO_BUILD)


def _is_help(error: OSError) -> bool:
    """Whether it happened while Typer wrote a help page, which goes to standard output past our sink."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(modules) and modules[-1].startswith(("typer.", "click."))


def _from_os(error: OSError) -> TwofoldError:
    """Files and folders that cannot be used, each error of the system with the path that it is about."""
    import errno

    if error.filename == STDOUT or (error.filename is None and _is_help(error)):
        return unwritten(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _no_space(error)
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        lost = isinstance(error, FileNotFoundError)  # from getcwd: the folder has been removed meanwhile
        return TwofoldError(reason, hint="cd to a folder that exists" if lost else None)
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    return TwofoldError(f"{reason}: {one_line(name, 200)}", hint=_path_hint(error.errno, name))


def _path_hint(number: int | None, name: str) -> str | None:
    import errno

    if _is_own(name):
        return "set TWOFOLD_HOME to a folder that you can write: twofold doctor"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "check the permissions, or name another place"
    return "check the path"


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
    mend_streams()
    with stop_signals():
        code = _run(invoke)
    return settle_streams(code)


def _run(invoke: Callable[[], None] | None) -> int:
    try:
        if invoke is None:
            from twofold.cli.app import build_app

            build_app()()
        else:
            invoke()
        return 0
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # Typer's answer to `| head`
            return READER_LEFT
        if stop.code == INTERRUPTED:  # Typer turns Ctrl-C into this, and says nothing
            err().line("interrupted")
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except KeyboardInterrupt:
        err().line("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        return READER_LEFT
    except Exception as error:  # noqa: BLE001 - the last line of defence: a defect too gets one line
        return _report(error)


def _report(error: Exception) -> int:
    if os.environ.get("TWOFOLD_DEBUG") == "1":
        traceback.print_exc()
    known = output_failure() if isinstance(error, OSError) else None
    known = known or explain(error)
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
