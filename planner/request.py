"""What a person asks of the planner: context, KV type, quality floor, residual width, margin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from twofold.planner.acceptance import RankStatistics
from twofold.planner.plan import KvType
from twofold.profiles.activations import USUAL, Activations
from twofold.profiles.errors import InvalidOption

DEFAULT_CONTEXT = 8192
DEFAULT_MARGIN_MIB = 512.0
KV_TYPES: tuple[KvType, ...] = get_args(KvType)


@dataclass(frozen=True, slots=True)
class QualityFloor:
    """The least quality that the user accepts: the fewest residual bits, the KV types and activations that are allowed.

    `note` says what is not known about the mapping. `kl` is the floor in nats where it is one: the other fields then
    are the strictest there is, until `planner.quality_floor` has looked up what is known to meet it.
    """

    name: str
    min_residual_bits: int
    kv_types: tuple[KvType, ...]
    note: str | None = None
    activations: tuple[Activations, ...] = get_args(Activations)
    kl: float | None = None

    @classmethod
    def parse(cls, text: str) -> QualityFloor:
        """`q8`, `q6`, `q4`, or a KL divergence in nats.

        Raises:
            InvalidOption: for anything else.
        """
        classes: dict[str, QualityFloor] = {
            "q8": cls("q8", 6, ("f16", "q8_0")),
            "q6": cls("q6", 5, ("f16", "q8_0")),
            "q4": cls("q4", 4, ("f16", "q8_0", "q4_0")),
        }
        found = classes.get(text.strip().lower())
        if found is not None:
            return found
        try:
            kl = float(text)
        except ValueError:
            kl = -1.0
        if not 0 < kl <= 10:
            raise InvalidOption(
                "the quality floor is not understood",
                found=f"--min-quality {text or repr(text)}",
                needed="q8, q6, q4, or a KL divergence above 0 and at most 10 (for example 0.002)",
                hint="twofold fit MODEL --min-quality q8",
            )
        note = (
            f"a KL of {kl:g} cannot be turned into residual bits before this model is quantised and measured; "
            "planned with 8 bits, an f16 cache and int16 activations, the strictest there is (`twofold eval` measures "
            "the KL)"
        )
        return cls(f"KL {kl:g}", 8, ("f16",), note, (USUAL,), kl)

    @property
    def least_words(self) -> str:
        """The width that is needed, in words."""
        if self.kl is not None:
            return f"a width whose KL is not known to be above {self.kl:g}"
        return f"at least {self.min_residual_bits} bits"

    def refuse_activations(self, activations: Activations) -> None:
        """A class holds for int8 activations too: Q8_0, which names the best one, is run with them.

        Raises:
            InvalidOption: a rounding below the floor.
        """
        if activations not in self.activations:
            unknown = "" if self.kl is None else ", or nobody measured their KL"
            raise InvalidOption(
                f"{activations} activations are below the quality floor {self.name}{unknown}",
                found=activations,
                needed=" or ".join(self.activations),
                hint=f"--activations {USUAL}, or lower --min-quality",
            )


@dataclass(frozen=True, slots=True)
class Request:
    """What to plan for. None means: choose.

    `kv_type` is for K and V alike, `v_type` for a V that differs; `fixed_bits` is the width of a checkpoint that exists
    already (another one would mean quantising again), `fixed_activations` are its own. `activations` are as asked
    (None: as the checkpoint has them, else the usual ones). `statistics` are of the model's draft, where known.
    """

    context_tokens: int | None = None
    kv_type: KvType | None = None
    v_type: KvType | None = None
    activations: Activations | None = None
    quality: QualityFloor = QualityFloor("q8", 6, ("f16", "q8_0"))  # the class of Q8_0
    residual_bits: int | None = None
    fixed_bits: int | None = None
    fixed_activations: Activations | None = None
    margin_mib: float = DEFAULT_MARGIN_MIB
    threads: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    statistics: RankStatistics | None = None

    def with_context(self, tokens: int) -> Request:
        return replace(self, context_tokens=tokens)

    def bits(self) -> int:
        """The residual width to plan with: as asked, as the checkpoint has it, or the least (fastest) above the floor.

        Raises:
            InvalidOption: when the wanted width is below the quality floor or no width at all.
        """
        bits = self.residual_bits or self.fixed_bits or self.quality.min_residual_bits
        if not 4 <= bits <= 8:
            raise InvalidOption("the residual width is not possible", found=f"{bits} bits", needed="4 to 8 bits")
        if bits < self.quality.min_residual_bits:
            raise InvalidOption(
                f"{bits} residual bits are below the quality floor {self.quality.name}",
                found=f"{bits} bits",
                needed=self.quality.least_words,
                hint="drop --residual-bits, or lower --min-quality"
                if self.residual_bits is not None
                else "twofold quantize MODEL -o DIR --residual-bits 8, or lower --min-quality",
            )
        return bits

    def rounding(self) -> Activations:
        """The activations to plan with.

        Raises:
            InvalidOption: when they are below the quality floor.
        """
        activations = self.activations or self.fixed_activations or USUAL
        self.quality.refuse_activations(activations)
        return activations

    def kv_choices(self) -> tuple[KvType, ...]:
        """KV types to try, best first.

        Raises:
            InvalidOption: when a wanted type is below the quality floor.
        """
        for kind in (self.kv_type, self.v_type):
            if kind is not None and kind not in self.quality.kv_types:
                unknown = "" if self.quality.kl is None else ", or nobody measured its KL"
                raise InvalidOption(
                    f"a {kind} cache is below the quality floor {self.quality.name}{unknown}",
                    found=kind,
                    needed=" or ".join(self.quality.kv_types),
                    hint="drop --kv, or lower --min-quality",
                )
        return self.quality.kv_types if self.kv_type is None else (self.kv_type,)


def resolve_context(requested: int | None, model_maximum: int, model_name: str) -> int:
    """The context to plan for.

    Raises:
        InvalidOption: when it is beyond the model's maximum.
    """
    if requested is None:
        return min(DEFAULT_CONTEXT, model_maximum)
    if requested > model_maximum:
        raise InvalidOption(
            f"the context is longer than {model_name} allows",
            found=f"{requested} tokens",
            needed=f"at most {model_maximum} tokens",
            hint=f"--ctx {model_maximum}",
        )
    return requested
