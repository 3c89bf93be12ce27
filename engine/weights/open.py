"""`open_weights`: the reader for whatever a path holds."""

from __future__ import annotations

from pathlib import Path

from twofold.engine.weights.source import WeightSource
from twofold.profiles.errors import UnsupportedModel


def open_weights(path: Path | str) -> WeightSource:
    """Open the weights of a safetensors folder or a `.gguf` file.

    Raises:
        ModelNotFound, UnsafeFile: nothing usable there.
        CorruptFile: truncated or damaged (found before any value is read).
        UnsupportedModel: an own checkpoint, or weights in a format that is not read.
    """
    from twofold.profiles.sources.local import classify

    kind, target = classify(Path(path))
    if kind == "gguf":
        from twofold.engine.weights.gguf_file import GgufWeights

        return GgufWeights(target)
    if kind == "checkpoint":
        raise UnsupportedModel(
            f"{target.name} is a twofold checkpoint, already split",
            needed="the model that it was made from",
            hint="give the source model",
        )
    from twofold.engine.weights.safetensors_folder import SafetensorsWeights

    return SafetensorsWeights(target)
