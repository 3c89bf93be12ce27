"""The options of `fit --engine llama.cpp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.profiles.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twofold.planner.llama_fit import LlamaFile
    from twofold.planner.llama_run import LlamaRun
    from twofold.profiles.model_spec import ModelSpec
    from twofold.profiles.observations import Observation

ENGINES = ("twofold", "llama.cpp")


def needs_llama(engine: str, *options: str | None) -> bool:
    """Whether llama.cpp is planned for.

    Raises:
        InvalidOption: an unknown engine, or an option of llama.cpp's without it.
    """
    if engine not in ENGINES:
        raise InvalidOption(
            "the engine is not known",
            found=f"--engine {engine}",
            needed=" or ".join(ENGINES),
            hint="--engine twofold",
        )
    if engine == "twofold" and any(option is not None for option in options):
        raise InvalidOption(
            "--weights-name, --weights-mib, --mmproj-mib, --draft-mtp and --slots describe a run of llama.cpp",
            needed="--engine llama.cpp",
            hint="add --engine llama.cpp",
        )
    return engine == "llama.cpp"


def llama_file(name: str | None, weights_mib: str | None, mmproj_mib: str | None) -> LlamaFile:
    """The file that is asked about."""
    from twofold.cli.fit_options import number
    from twofold.planner.llama_fit import LlamaFile

    return LlamaFile(
        name, number(weights_mib, "--weights-mib", 1, 1 << 22), number(mmproj_mib, "--mmproj-mib", 1, 1 << 18)
    )


def llama_run(ctx: str | None, kv: str | None, kv_v: str | None, draft_mtp: str | None, slots: str | None) -> LlamaRun:
    """The run that is asked about.

    Raises:
        InvalidOption: for what is no context, cache type, draft or number of slots.
    """
    from twofold.cli.fit_options import kv_kind, whole_number
    from twofold.cli.launch_options import parse_context
    from twofold.planner.llama_run import LlamaRun
    from twofold.planner.request import DEFAULT_CONTEXT

    return LlamaRun(
        parse_context(ctx) or DEFAULT_CONTEXT,
        kv_kind(kv, "--kv") or "f16",
        v_type=kv_kind(kv_v, "--kv-v"),
        draft_mtp=whole_number(draft_mtp, "--draft-mtp", 0, 64) or 0,
        slots=whole_number(slots, "--slots", 1, 1024) or 1,
    )


def spec_of_name(name: str | None, observations: Sequence[Observation]) -> ModelSpec:
    """The known model that a file of this name is of, where no MODEL was given.

    Raises:
        InvalidOption: no name, or no model that it tells.
    """
    from twofold.planner.named_sizes import model_of
    from twofold.profiles.readers.shipped import shipped_specs

    found = model_of(name, shipped_specs(), observations) if name is not None else None
    if found is None:
        raise InvalidOption(
            "--engine llama.cpp needs a model",
            found="no MODEL" if name is None else f"no MODEL, and no known model in the name {name!r}",
            hint="twofold fit Qwen/Qwen3.8-27B --engine llama.cpp",
        )
    return found
