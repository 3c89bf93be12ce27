"""Options that commands share: how a model is opened, how its tokens are chosen, how an answer goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from twofold.cli.launch_options import LaunchOptions
    from twofold.engine.sampling import SamplingParams
    from twofold.engine.text import Tokenizer

ResidualBitsOption = Annotated[
    int | None, typer.Option("--residual-bits", metavar="BITS", help="Residual width, 4 to 8 bits.")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", metavar="N", help="CPU threads.")]
KvOption = Annotated[str | None, typer.Option("--kv", metavar="TYPE", help="KV cache: f16 (default), q8_0 or q4_0.")]
KvKOption = Annotated[str | None, typer.Option("--kv-k", metavar="TYPE", help="The cache of keys alone.")]
KvVOption = Annotated[str | None, typer.Option("--kv-v", metavar="TYPE", help="The cache of values alone.")]
ActivationsOption = Annotated[
    str | None,
    typer.Option(
        "--activations", metavar="TYPE", help="Activations of products: int16, or int8: faster, a little less exact."
    ),
]
CalibrationOption = Annotated[
    str | None,
    typer.Option("--calibration", metavar="TEXT", help="If the model is quantised first: shipped, self, or a file."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Open the model even if it does not fit the free memory.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before long work.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, then stop.")]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Run exactly this saved plan.", show_default=False)
]
CtxOption = Annotated[
    str | None,
    typer.Option(
        "--ctx", metavar="TOKENS", help="Context in tokens (32K = 32768; default 8192, or the model's own where less)."
    ),
]


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """What decides the checkpoint that is opened, its cache and its rounding."""

    residual_bits: ResidualBitsOption = None
    kv: KvOption = None
    kv_k: KvKOption = None
    kv_v: KvVOption = None
    activations: ActivationsOption = None
    threads: ThreadsOption = None
    calibration: CalibrationOption = None
    yes: YesOption = False
    force: ForceOption = False


@dataclass(frozen=True, slots=True)
class ModelOptions(CheckpointOptions):
    """What decides how a model is run."""

    plan: PlanOption = None
    ctx: CtxOption = None
    dry_run: DryRunOption = False

    def of(self, model: str) -> LaunchOptions:
        """The request for `model`.

        Raises:
            InvalidOption: a value out of range, or options that exclude each other.
        """
        from twofold.cli.launch_options import LaunchOptions, parse_activations, parse_context

        return LaunchOptions(
            model=model,
            ctx=parse_context(self.ctx),
            residual_bits=self.residual_bits,
            kv=self.kv,
            kv_k=self.kv_k,
            kv_v=self.kv_v,
            activations=parse_activations(self.activations),
            threads=self.threads,
            plan_path=self.plan,
            assume_yes=self.yes,
            dry_run=self.dry_run,
            calibration=self.calibration,
            is_forced=self.force,
        )


_SAMPLING = {
    "temperature": ("--temp", "0.7"),
    "top_k": ("--top-k", "40"),
    "top_p": ("--top-p", "0.9"),
    "min_p": ("--min-p", "0.05"),
    "repetition_penalty": ("--repeat-penalty", "1.1"),
    "seed": ("--seed", "0"),
}
"""The option of each value of sampling, and a value of it for hints."""


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """What a person asked for; None leaves a value to the model's own defaults, and where it has none, to none.

    Raises:
        InvalidOption: a value that is out of range.
    """

    temperature: Annotated[
        float | None,
        typer.Option(
            "--temp",
            metavar="T",
            help="Temperature; 0 takes the likeliest token. Default, as of all samplers: the model's own; else 0.",
        ),
    ] = None
    top_k: Annotated[
        int | None, typer.Option("--top-k", metavar="K", help="Choose among the K likeliest tokens (default 0: all).")
    ] = None
    top_p: Annotated[
        float | None, typer.Option("--top-p", metavar="P", help="Choose among tokens that make up P (default 1: all).")
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option("--min-p", metavar="P", help="Drop tokens below this part of the likeliest (default 0: none)."),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            "--repeat-penalty", metavar="X", help="Penalty on tokens already said, 0.01 to 100 (default 1: none)."
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed of the sampling: same seed, same text (default 0).")
    ] = None

    def __post_init__(self) -> None:
        from twofold.engine.sampling import SamplingParams
        from twofold.profiles.errors import InvalidOption

        for name, (option, example) in _SAMPLING.items():
            value = getattr(self, name)
            try:
                SamplingParams(**({} if value is None else {name: value}))
            except InvalidOption as error:
                raise InvalidOption(
                    f"{option} is not valid", found=error.found, needed=error.needed, hint=f"{option} {example}"
                ) from None

    def params(self, tokenizer: Tokenizer) -> SamplingParams:
        """The options over the model's generation_config.json."""
        from twofold.engine.sampling import SamplingParams

        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return SamplingParams.from_generation_config(tokenizer.generation_config, **values)

    def idle_words(self, params: SamplingParams) -> str | None:
        """That options were given which do nothing, since the likeliest token is always taken; None where all count."""
        names = ("seed", "top_p", "min_p") + (("top_k",) if params.temperature == 0 else ())
        given = [option for name, (option, _) in _SAMPLING.items() if name in names and getattr(self, name) is not None]
        if not params.greedy or not given:
            return None
        why, instead = ("temperature 0", "--temp 0.8") if params.temperature == 0 else ("--top-k 1", "--top-k 40")
        have = "has" if len(given) == 1 else "have"
        return f"{' and '.join(given)} {have} no effect at {why}; {instead} samples"


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What surrounds an answer: the system prompt before it, and where it ends.

    Raises:
        InvalidOption: an empty text to stop at.
    """

    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System prompt.")] = None
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Longest answer in tokens.")
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End the answer before this text; may be given again."),
    ] = None

    def __post_init__(self) -> None:
        from twofold.profiles.errors import InvalidOption

        if any(not text for text in self.stop or ()):
            raise InvalidOption(
                "--stop needs a text",
                found="an empty one, which ends nothing",
                hint="--stop '###', or leave the option out",
            )
