"""How many threads the CPU engine gets here, and whether more were asked for than take turns."""

from __future__ import annotations

import os
import sys

from twofold.cli.doctor_checks import Check


def usable_cpus() -> float | None:
    """CPUs' worth of time that this process may use: its CPUs, or a quota below them; None where it cannot be told."""
    from twofold.probes.cpu import read_cpu

    cpu = read_cpu(ask_native=False)
    limits = [figure.number for figure in (cpu.usable_cpus, cpu.quota_cpus) if figure.is_number]
    return min(limits) if limits else None


def usual_threads() -> int | None:
    """What a plan takes without a wish: one thread for each physical core, within the CPUs and the quota."""
    from twofold.probes.cpu import read_cpu

    cores, cpus = read_cpu(ask_native=False).physical_cores, usable_cpus()
    limits = [limit for limit in (cores.number if cores.is_number else None, cpus) if limit is not None]
    return max(1, int(min(limits))) if limits else None


def too_many(threads: int) -> str | None:
    """Why `threads` are too many for this process, or None. One is never too many."""
    cpus = usable_cpus()
    if cpus is None or threads <= max(cpus, 1):
        return None
    return f"{threads} threads take turns on {cpus:g} CPU{'s' if cpus != 1 else ''}, and every pass waits for the last"


def check_threads() -> Check:
    """The setting against this machine, and where the workers run."""
    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.settings import describe_settings

    usual = usual_threads()
    try:
        setting = next((value, origin) for name, value, origin in describe_settings() if name == "threads")
    except TwofoldError:  # `check_settings` says which
        setting = None, ""
    wanted, origin = setting
    if wanted is not None and (reason := too_many(wanted)) is not None:
        remedy = f"unset {origin}" if origin.startswith("TWOFOLD_") else f"take threads out of {origin}"
        return Check("threads", "warn", f"{wanted}, set by {origin}: {reason}", remedy)
    found = f"{wanted}, set by {origin}" if wanted is not None else f"{usual or 1}, one for each usable core"
    return Check("threads", "ok", f"{found}; {_placement()}")


def _placement() -> str:
    """Where the pool puts its workers."""
    from twofold.kernels.cpu import NativeMissing, native

    if os.environ.get("TWOFOLD_PIN") == "0":
        return "not pinned, by TWOFOLD_PIN=0"
    if not sys.platform.startswith("linux"):
        return "not pinned: this system has no CPU affinity"
    try:
        share = native().cpu_share(sorted(os.sched_getaffinity(0)))
    except NativeMissing:
        return "no native pool"
    order = " ".join(map(str, share["order"][:16])) + (" …" if len(share["order"]) > 16 else "")
    whole = "distinct cores first" if share["whole_cores"] else "which share cores with other processes"
    quota = f"; a quota of {share['quota']:g} CPUs" if share["quota"] else ""
    return f"pinned while they work, in this order: CPU {order}, {whole}{quota}"
