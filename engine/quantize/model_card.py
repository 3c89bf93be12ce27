"""The files beside the weights: tokenizer, generation defaults, model card; and the source's `config.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.text.tokenizer import Tokenizer
from twofold.profiles.files import write_atomically
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.local import read_config
from twofold.profiles.sources.aliases import licence_of

_CARD = """---
library_name: twofold
tags: [twofold, quantized]
---

# {name}, split for twofold

A 2-bit base that drafts, and a {bits}-bit residual that restores 8-bit-class precision on top of it. Run it with
`twofold chat PATH`.

| | |
|---|---|
| source | {name}, weights {dtype}, SHA-256 `{sha256}` |
| licence | {licence} |
| base | 4 levels {levels}, scale group {group_size} |
| residual | {bits} bits{overrides} |
| calibration | {calibration}, {tokens} tokens, SHA-256 `{calibration_sha256}`{refined} |
| seed | {seed} |

Nothing was measured yet; `twofold eval PATH` measures and `config.json` keeps what it found.
"""


def write_companions(folder: Path, source: Path, spec: ModelSpec, config: CheckpointConfig) -> dict[str, Any]:
    """Write tokenizer files and model card; the source's configuration is returned for `config.json`."""
    Tokenizer.load(source).save(folder)
    overrides = ", ".join(f"{name} {bits}" for name, bits in config.overrides.items())
    passes = config.calibration.get("refine_passes")
    card = _CARD.format(
        name=spec.name,
        bits=config.residual_bits,
        dtype=config.source.get("dtype"),
        sha256=config.source.get("sha256"),
        licence=licence_of(config.source.get("sha256")) or "the source model's own: see there",
        levels=list(config.base_levels),
        group_size=config.group_size,
        overrides=f" ({overrides})" if overrides else "",
        calibration=config.calibration.get("id"),
        tokens=config.calibration.get("tokens"),
        calibration_sha256=config.calibration.get("sha256"),
        refined=f"; the base's scales trained on it, {passes} passes" if passes else "",
        seed=config.seed,
    )
    write_atomically(folder / "README.md", card)
    return dict(read_config(source))
