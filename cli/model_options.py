"""Options that `chat` and `run` share: how a model is opened, and how its tokens are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from twofold.engine.sampling import SamplingParams
    from twofold.engine.text import Tokenizer

PlanOption = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Run exactly this saved plan.", show_default=False)
]
CtxOption = Annotated[str | None, typer.Option("--ctx", metavar="TOKENS", help="Context in tokens (32K = 32768).")]
ResidualBitsOption = Annotated[int | None, typer.Option("--residual-bits", help="Residual width, 4 to 8 bits.")]
KvOption = Annotated[str | None, typer.Option("--kv", help="KV cache: f16, q8_0 or q4_0.")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="CPU threads.")]
CalibrationOption = Annotated[
    str | None,
    typer.Option("--calibration", metavar="TEXT", help="If the model is quantised first: shipped, self, or a file."),
]
SystemOption = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System prompt.")]
TempOption = Annotated[float | None, typer.Option("--temp", help="Temperature; 0 takes the likeliest token.")]
TopKOption = Annotated[int | None, typer.Option("--top-k", help="Choose among the K likeliest tokens; 0 for all.")]
TopPOption = Annotated[float | None, typer.Option("--top-p", help="Choose among tokens that make up P.")]
MinPOption = Annotated[float | None, typer.Option("--min-p", help="Drop tokens below this part of the likeliest.")]
RepeatOption = Annotated[float | None, typer.Option("--repeat-penalty", help="Penalty on tokens already said.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of the sampling: same seed, same text.")]
MaxTokensOption = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Longest answer in tokens.")]
StopOption = Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="End the answer at this text.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before long work.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, then stop.")]


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """What a person asked for; None leaves a value to the model's own defaults.

    Raises:
        InvalidOption: a value that is out of range.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        self._over({})

    def params(self, tokenizer: Tokenizer) -> SamplingParams:
        """The options over the model's generation_config.json."""
        return self._over(tokenizer.generation_config)

    def _over(self, defaults: dict[str, Any]) -> SamplingParams:
        from twofold.engine.sampling import SamplingParams

        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return SamplingParams.from_generation_config(defaults, **values)
