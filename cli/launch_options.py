"""What a person asked for on the command line of `chat`, `run` and the commands that open a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twofold.profiles.errors import InvalidOption
from twofold.profiles.preferences import DEFAULT_MODEL, KV_TYPES, BadValue, tokens


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """A request for a loaded model; None leaves the choice to the planner.

    Attributes:
        ctx: tokens of context.
        kv: cache type for K and V (`f16`, `q8_0`, `q4_0`).
        plan_path: a saved plan that is run as it is; excludes ctx, residual_bits, kv and threads.
        assume_yes: do not ask before long work.
        dry_run: print what would be done, then stop.
        seed: of the quantiser (the seed of sampling belongs to the session).
        calibration: `shipped`, `self` or a file, for when the model must be quantised first.
    """

    model: str = DEFAULT_MODEL
    ctx: int | None = None
    residual_bits: int | None = None
    kv: str | None = None
    threads: int | None = None
    plan_path: Path | None = None
    assume_yes: bool = False
    dry_run: bool = False
    seed: int = 0
    calibration: str | None = None

    def __post_init__(self) -> None:
        if self.residual_bits is not None and not 4 <= self.residual_bits <= 8:
            raise InvalidOption(
                "--residual-bits is out of range",
                found=str(self.residual_bits),
                needed="4 to 8",
                hint="--residual-bits 6",
            )
        if self.threads is not None and not 1 <= self.threads <= 4096:
            raise InvalidOption("--threads is out of range", found=str(self.threads), needed="1 to 4096")
        if self.kv is not None and self.kv not in KV_TYPES:
            raise InvalidOption("--kv is not known", found=self.kv, needed="f16, q8_0 or q4_0", hint="--kv f16")
        fixed = {"--ctx": self.ctx, "--residual-bits": self.residual_bits, "--kv": self.kv, "--threads": self.threads}
        given = [name for name, value in fixed.items() if value is not None]
        if self.plan_path is not None and given:
            raise InvalidOption(
                f"--plan already decides {', '.join(given)}", needed="one of the two", hint=f"leave out {given[0]}"
            )


def parse_context(text: str | None) -> int | None:
    """`--ctx` as tokens, in the notation of the setting `ctx`.

    Raises:
        InvalidOption: not a number of tokens, or out of range.
    """
    if text is None:
        return None
    try:
        return tokens(text)
    except BadValue as error:
        raise InvalidOption("--ctx is not valid", found=repr(text), needed=str(error), hint="--ctx 8K") from None
