"""What a person asked for on the command line of `chat`, `run` and the commands that open a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.profiles.activations import CHOICES as ACTIVATIONS
from twofold.profiles.errors import InvalidOption
from twofold.profiles.preferences import DEFAULT_MODEL, KV_TYPES, BadValue, tokens

if TYPE_CHECKING:
    from twofold.planner.plan import KvType
    from twofold.profiles.activations import Activations


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """A request for a loaded model; None leaves the choice to the planner.

    Attributes:
        ctx: tokens of context.
        kv: cache type for K and V alike (`f16`, `q8_0`, `q4_0`); kv_k, kv_v: apart.
        activations: `int16` or `int8`; None: as settings say, or the checkpoint has them.
        plan_path: a saved plan that is run as it is; excludes ctx, residual_bits, cache types, activations and threads.
        assume_yes: do not ask before long work.
        dry_run: print what would be done, then stop.
        seed: of the quantiser (the seed of sampling belongs to the session).
        calibration: `shipped`, `self` or a file, for when the model must be quantised first.
        is_forced: open it also where its memory is not there.
    """

    model: str = DEFAULT_MODEL
    ctx: int | None = None
    residual_bits: int | None = None
    kv: str | None = None
    kv_k: str | None = None
    kv_v: str | None = None
    activations: Activations | None = None
    threads: int | None = None
    plan_path: Path | None = None
    assume_yes: bool = False
    dry_run: bool = False
    seed: int = 0
    calibration: str | None = None
    is_forced: bool = False

    def __post_init__(self) -> None:
        if self.residual_bits is not None and not 4 <= self.residual_bits <= 8:
            raise InvalidOption(
                "--residual-bits is out of range",
                found=str(self.residual_bits),
                needed="4 to 8",
                hint="--residual-bits 6",
            )
        if self.threads is not None and not 1 <= self.threads <= 4096:
            raise InvalidOption(
                "--threads is out of range",
                found=str(self.threads),
                needed="1 to 4096",
                hint="--threads 1, or leave it out: one a physical core",
            )
        self._check_cache()
        fixed = {"--ctx": self.ctx, "--residual-bits": self.residual_bits, **self._cache}
        fixed |= {"--activations": self.activations, "--threads": self.threads}
        given = [name for name, value in fixed.items() if value is not None]
        if self.plan_path is not None and given:
            raise InvalidOption(
                f"--plan already decides {', '.join(given)}", needed="one of the two", hint=f"leave out {given[0]}"
            )

    @property
    def _cache(self) -> dict[str, str | None]:
        return {"--kv": self.kv, "--kv-k": self.kv_k, "--kv-v": self.kv_v}

    def _check_cache(self) -> None:
        for option, kind in self._cache.items():
            if kind is not None and kind not in KV_TYPES:
                needed = "f16, q8_0 or q4_0"
                raise InvalidOption(f"{option} is not known", found=kind, needed=needed, hint=f"{option} f16")
        apart = [f"{option} {kind}" for option, kind in list(self._cache.items())[1:] if kind is not None]
        if self.kv is not None and apart:
            raise InvalidOption(
                "--kv already decides the cache of keys and of values",
                found=f"--kv {self.kv} and {' '.join(apart)}",
                needed="--kv for both, or --kv-k and --kv-v apart",
                hint=f"leave out --kv {self.kv}",
            )

    def kv_types(self, otherwise: str | None = None) -> tuple[KvType, KvType]:
        """The cache types of K and V; `otherwise` (f16 without) is that of a side for which nothing was asked."""
        from twofold.planner.request import KV_TYPES as planned

        sides = [side or self.kv or otherwise or "f16" for side in (self.kv_k, self.kv_v)]
        k, v = (next(kind for kind in planned if kind == side) for side in sides)
        return k, v


def parse_activations(text: str | None) -> Activations | None:
    """`--activations` by name.

    Raises:
        InvalidOption: for what is none.
    """
    found = next((one for one in ACTIVATIONS if one == text), None)
    if found is None and text is not None:
        needed = " or ".join(ACTIVATIONS)
        hint = f"--activations {ACTIVATIONS[0]}"
        raise InvalidOption("--activations is not known", found=repr(text), needed=needed, hint=hint)
    return found


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
