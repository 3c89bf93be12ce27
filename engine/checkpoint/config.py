"""`CheckpointConfig`: the `quantization_config` of a twofold checkpoint (`docs/checkpoint.md`), parsed strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from twofold.kernels.naive.packing import RESIDUAL_BITS
from twofold.kernels.naive.split_weights import EXCHANGE_DTYPES, MAX_GROUP_SIZE, ExchangeDtype
from twofold.profiles.activations import PLANES, Activations, of_planes
from twofold.profiles.errors import CorruptFile, UnsupportedModel

VERSION = 1
QUANT_METHOD = "twofold"
_REQUIRED = frozenset({"quant_method", "version", "group_size", "base", "residual", "exchange_dtype", "seed"})
_OPTIONAL = frozenset({"source", "calibration", "tokenizer_sha256", "measured"})


class _Reader:
    """Typed access to one JSON object, with the path of each field in the error."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, Mapping):
            raise CorruptFile(f"{where} is not an object", found=type(data).__name__)
        self.data, self.where = data, where

    def keys(self, required: frozenset[str], optional: frozenset[str] = frozenset()) -> None:
        missing, extra = required - set(self.data), set(self.data) - required - optional
        if missing or extra:
            raise CorruptFile(
                f"{self.where} does not follow the checkpoint format",
                found=f"unknown: {', '.join(sorted(extra))}" if extra else "fields missing",
                needed=f"missing: {', '.join(sorted(missing))}" if missing else None,
            )

    def integer(self, key: str, allowed: tuple[int, ...] | None = None, low: int = 0) -> int:
        value = self.data[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise CorruptFile(f"{self.where}.{key} is not valid", found=repr(value), needed=f"an integer ≥ {low}")
        if allowed is not None and value not in allowed:
            needed = " or ".join(str(one) for one in allowed)
            raise CorruptFile(f"{self.where}.{key} is not valid", found=repr(value), needed=needed)
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.data.get(key, {})
        if not isinstance(value, Mapping):
            raise CorruptFile(f"{self.where}.{key} is not an object", found=type(value).__name__)
        return dict(value)


def _levels(value: Any, where: str) -> tuple[int, int, int, int]:
    is_list = isinstance(value, list | tuple) and len(value) == 4
    if not is_list or not all(isinstance(v, int) and not isinstance(v, bool) and -127 <= v <= 127 for v in value):
        raise CorruptFile(f"{where}.levels is not valid", found=repr(value), needed="four integers within ±127")
    if list(value) != sorted(set(value)):
        raise CorruptFile(f"{where}.levels is not valid", found=repr(value), needed="ascending levels")
    return (value[0], value[1], value[2], value[3])


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """How a checkpoint was quantised.

    `overrides` is the residual width of single groups; `planes` how many int8 planes carry the activations of that
    product where no plan says otherwise; `source`, `calibration` and `measured` are free-form records of the format.
    """

    residual_bits: int
    group_size: int = 128
    base_levels: tuple[int, int, int, int] = (-127, -38, 38, 127)
    base_planes: int = 2
    residual_planes: int = 2
    overrides: Mapping[str, int] = field(default_factory=dict)
    exchange_dtype: ExchangeDtype = "float32"
    seed: int = 0
    source: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_sha256: str | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)

    def bits_of(self, group: str) -> int:
        """The residual width of a group."""
        return self.overrides.get(group, self.residual_bits)

    @property
    def activations(self) -> Activations:
        """How products round their activations."""
        return of_planes(self.base_planes, self.residual_planes)

    def under(self, activations: Activations) -> CheckpointConfig:
        """This configuration with activations as a plan wants them."""
        base, residual = PLANES[activations]
        return replace(self, base_planes=base, residual_planes=residual)

    def to_json(self) -> dict[str, Any]:
        """The object stored in `config.json`."""
        return {
            "quant_method": QUANT_METHOD,
            "version": VERSION,
            "group_size": self.group_size,
            "base": {"bits": 2, "levels": list(self.base_levels), "planes": self.base_planes},
            "residual": {
                "bits": self.residual_bits,
                "planes": self.residual_planes,
                "overrides": dict(self.overrides),
            },
            "exchange_dtype": self.exchange_dtype,
            "seed": self.seed,
            "source": dict(self.source),
            "calibration": dict(self.calibration),
            "tokenizer_sha256": self.tokenizer_sha256,
            "measured": dict(self.measured),
        }

    @classmethod
    def from_json(cls, data: Any, where: str = "quantization_config") -> CheckpointConfig:
        """Parse and validate.

        Raises:
            UnsupportedModel: when it is not twofold's, or of another format version.
            CorruptFile: when a field is missing, unknown, or out of range.
        """
        top = _Reader(data, where)
        method, version = top.data.get("quant_method"), top.data.get("version")
        if method != QUANT_METHOD:
            raise UnsupportedModel(f"{where} is not twofold's", found=repr(method), needed=repr(QUANT_METHOD))
        if version != VERSION or isinstance(version, bool):
            raise UnsupportedModel(
                "the checkpoint has another format version",
                found=repr(version),
                needed=str(VERSION),
                hint="pip install --upgrade twofold, or quantise the model again: twofold quantize MODEL -o DIR",
            )
        top.keys(_REQUIRED, _OPTIONAL)
        base, residual = _Reader(top.data["base"], f"{where}.base"), _Reader(top.data["residual"], f"{where}.residual")
        base.keys(frozenset({"bits", "levels", "planes"}))
        residual.keys(frozenset({"bits", "planes"}), frozenset({"overrides"}))
        base.integer("bits", (2,))
        overrides = _Reader(residual.mapping("overrides"), f"{residual.where}.overrides")
        exchange = top.data["exchange_dtype"]
        if exchange not in EXCHANGE_DTYPES:
            needed = " or ".join(EXCHANGE_DTYPES)
            raise CorruptFile(f"{where}.exchange_dtype is not valid", found=repr(exchange), needed=needed)
        group_size = top.integer("group_size", low=16)
        if group_size % 16 or group_size > MAX_GROUP_SIZE:
            needed = f"a multiple of 16 up to {MAX_GROUP_SIZE}"
            raise CorruptFile(f"{where}.group_size is not valid", found=str(group_size), needed=needed)
        sha256 = top.data.get("tokenizer_sha256")
        return cls(
            residual_bits=residual.integer("bits", RESIDUAL_BITS),
            group_size=group_size,
            base_levels=_levels(base.data["levels"], base.where),
            base_planes=base.integer("planes", (1, 2)),
            residual_planes=residual.integer("planes", (1, 2)),
            overrides={name: overrides.integer(name, RESIDUAL_BITS) for name in overrides.data},
            exchange_dtype=exchange,
            seed=top.integer("seed"),
            source=top.mapping("source"),
            calibration=top.mapping("calibration"),
            tokenizer_sha256=None if sha256 is None else str(sha256),
            measured=top.mapping("measured"),
        )
