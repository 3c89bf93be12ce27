"""`read_spec`: the facts of a referenced model from metadata alone."""

from __future__ import annotations

from dataclasses import replace

from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.sources.aliases import ALIASES
from twofold.profiles.sources.model_ref import ModelRef, local_name


def identify(ref: ModelRef) -> ModelRef:
    """`ref`, with kind "checkpoint" where the Hub holds an own checkpoint (only its `config.json` is fetched).

    Raises:
        ModelNotFound: a Hub model that does not exist, is gated, or cannot be reached.
    """
    from twofold.profiles.readers.shipped import shipped_id

    if ref.kind != "hub" or ref.file is not None or ref.repo is None or shipped_id(ref.repo) is not None:
        return ref
    from twofold.profiles.sources.hub import is_hub_checkpoint

    return replace(ref, kind="checkpoint") if is_hub_checkpoint(ref) else ref


def read_spec(ref: ModelRef) -> ModelSpec:
    """The model's spec: shipped facts (no network), a local header, or header bytes from the Hub.

    Raises:
        ModelNotFound: a Hub model that does not exist, is gated, or cannot be reached.
        UnsupportedModel: an architecture that is not understood. CorruptFile: damaged metadata.
    """
    from twofold.profiles.readers.local import read_folder_spec, read_gguf_spec
    from twofold.profiles.readers.shipped import shipped_spec

    if ref.alias is not None:
        wheel = ALIASES[ref.alias]
        spec = shipped_spec(wheel.facts_repo, name=ref.name, weights_bytes=wheel.file_bytes)
        assert spec is not None, "the facts of every alias ship"
        return spec
    if ref.path is not None:
        reader = read_gguf_spec if ref.kind == "gguf" else read_folder_spec
        return reader(ref.path, name=local_name(ref.kind, ref.path))
    assert ref.repo is not None, "a reference without a path is a Hub model"
    shipped = shipped_spec(ref.repo) if ref.revision is None and ref.file is None else None
    if shipped is not None:
        return shipped
    from twofold.profiles.sources.hub import read_hub_spec

    return read_hub_spec(ref)
