"""From what a person asks for to a `Calibration`: which text is used, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twofold.engine.quantize import calibration
from twofold.engine.quantize.calibration import Calibration
from twofold.engine.quantize.cost import Rates
from twofold.engine.quantize.options import MIN_CALIBRATION_TOKENS
from twofold.engine.text.tokenizer import Tokenizer
from twofold.engine.weights import open_weights
from twofold.profiles.errors import InvalidOption
from twofold.profiles.figures import Figure, reasoned
from twofold.profiles.model_spec import ModelSpec

MAX_SELF_SECONDS = 600.0
"""The model writes its own calibration text by default only where that is expected to take less than this."""

MAX_TOKENS = 1 << 20


def is_shipped_models_own(spec: ModelSpec) -> bool:
    """Whether the shipped text was written by this model, so that it is in-distribution."""
    return "smollm2-135m-instruct" in spec.name.lower() or spec.name.lower() == "smollm2"


def self_seconds(spec: ModelSpec, n_tokens: int, rates: Rates) -> Figure:
    """Estimated time for the model to write `n_tokens` in fp32: products at half of the measured rate."""
    n_weights = spec.n_decoder_weights + spec.vocab_size * spec.hidden_size
    value = 2.0 * n_weights * n_tokens * 1.3 / (0.5 * rates.gemm_gflops.number * 1e9)
    by = f"operations of sampling counted, at half of {rates.gemm_gflops.value} GFLOP/s measured here"
    return reasoned(round(value, 1), "s", by, low=round(value / 2, 1), high=round(value * 3, 1))


@dataclass(frozen=True, slots=True)
class CalibrationChoice:
    """`kind` is `shipped`, `self` or `file`; `reason` says why it was chosen; `time` only where it takes any."""

    kind: str
    reason: str
    path: Path | None = None
    time: Figure | None = None


def choose(
    asked: str | None, spec: ModelSpec, n_tokens: int, rates: Rates, available_ram_bytes: int | None
) -> CalibrationChoice:
    """Decide on the text before any weight is read. `asked` is `shipped`, `self`, a file's path, or None for the
    default.

    Raises:
        InvalidOption: for a number of tokens that cannot be used.
        InvalidCalibration: for a file that cannot serve, whatever the tokenizer (`calibration.check_file`).
    """
    if not MIN_CALIBRATION_TOKENS <= n_tokens <= MAX_TOKENS:
        raise InvalidOption(
            f"cannot calibrate with {n_tokens} tokens",
            needed=f"{MIN_CALIBRATION_TOKENS} to {MAX_TOKENS}",
            hint="--calibration-tokens 8192",
        )
    if asked == "shipped":
        return CalibrationChoice("shipped", "asked for")
    estimate = self_seconds(spec, n_tokens, rates)
    if asked == "self":
        return CalibrationChoice("self", "asked for", time=estimate)
    if asked is not None:
        path = Path(asked).expanduser()
        calibration.check_file(path)
        return CalibrationChoice("file", "asked for", path)
    if is_shipped_models_own(spec):
        return CalibrationChoice("shipped", "this model wrote it")
    needed = 4.0 * (spec.n_decoder_weights + spec.n_embedding_weights)
    if available_ram_bytes is not None and needed * 1.2 > available_ram_bytes:
        return CalibrationChoice("shipped", "the model does not fit memory to write its own")
    if estimate.number >= MAX_SELF_SECONDS:
        return CalibrationChoice("shipped", f"writing its own would take about {estimate.number / 60:.0f} minutes")
    return CalibrationChoice("self", "the shipped text is another model's", time=estimate)


def make(
    choice: CalibrationChoice,
    source_path: Path,
    spec: ModelSpec,
    n_tokens: int,
    seed: int,
    told: Callable[[int, int], None] | None = None,
) -> Calibration:
    """The calibration text as tokens; with `self` the model writes it now.

    Raises:
        InvalidCalibration: see `calibration.from_file` and `self_calibration.written_by_model`.
        UnsupportedModel: no tokenizer.
    """
    tokenizer = Tokenizer.load(source_path)
    if choice.kind == "file":
        assert choice.path is not None
        return calibration.from_file(choice.path, tokenizer, n_tokens)
    if choice.kind == "self":
        from twofold.engine.quantize.self_calibration import written_by_model

        with open_weights(source_path) as source:
            source.check_complete(spec)
            return written_by_model(source, spec, tokenizer, n_tokens, seed, told)
    return calibration.shipped(tokenizer, n_tokens, in_distribution=is_shipped_models_own(spec))
