"""The plan that `twofold tune` found for a model, and whether it holds for what is asked for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from twofold.cli.launch_options import LaunchOptions
    from twofold.planner.plan import Plan


def machine_identity() -> dict[str, str]:
    """What of this machine and build decides times: by `profiles.plan_store.MACHINE`."""
    import hashlib
    from pathlib import Path

    from twofold.cli.version import commit, kernels_label
    from twofold.kernels.cpu import native
    from twofold.probes.cpu import read_cpu

    cpu = read_cpu()
    module = getattr(native(), "__file__", None)
    digest = hashlib.sha256(Path(module).read_bytes()).hexdigest()[:12] if module else "unknown"
    cores = [figure.value for figure in (cpu.physical_cores, cpu.usable_cpus, cpu.quota_cpus)]
    return {
        "cpu": str(cpu.model.value)[:200],
        "cores": "/".join(str(value) for value in cores),
        "isa": kernels_label()[:200],
        "build": f"{commit()} {digest}",
    }


def asked_cache(options: LaunchOptions) -> str:
    """The cache type that was asked for by options or settings, as plans are kept under it."""
    from twofold.profiles.plan_store import ANY_CACHE
    from twofold.profiles.settings import get_settings

    setting = get_settings().kv
    if (options.kv_k, options.kv_v, options.kv, setting) == (None, None, None, None):
        return ANY_CACHE
    k, v = options.kv_types(setting)
    return k if k == v else f"{k}/{v}"


def tuned_plan(
    model_key: str, default: Plan, options: LaunchOptions, check: Callable[[Plan], None] = lambda _: None
) -> Plan | None:
    """The tuned plan to run in the place of `default`; None where there is none or what was asked for differs.

    One that was tuned elsewhere or with another build, or that `check` refuses, is reported and not used.
    """
    from twofold.cli.output import err
    from twofold.planner.plan import Plan
    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.plan_store import read_tuned, tuned_path
    from twofold.profiles.settings import get_settings

    asked = (model_key, default.context_tokens, asked_cache(options), default.activations)
    kept = read_tuned(*asked)
    if kept is None:
        if tuned_path(*asked).exists():
            err().warning(f"the tuned plan cannot be read and is not used: {tuned_path(*asked)}")
        return None
    threads = options.threads or get_settings().threads
    again = f"twofold tune {options.model} measures again"
    different = kept.differences(machine_identity())
    if different:
        err().warning(f"the plan tuned on {kept.day} is not used ({'; '.join(different)}): {again}")
        return None
    try:
        plan = Plan.from_dict(dict(kept.plan))
        check(plan)
    except TwofoldError as error:
        err().warning(f"the plan tuned on {kept.day} is not used ({error.what}): {again}")
        return None
    fixed = ("context_tokens", "residual_bits", "activations", "cpu_isa", "device")
    if any(getattr(plan, name) != getattr(default, name) for name in fixed):
        why = "it is for another context, width or rounding"
        err().warning(f"the plan tuned on {kept.day} is not used ({why}): {again}")
        return None
    if threads is not None and plan.threads != threads:
        return None
    return plan.model_copy(update={"model": default.model})
