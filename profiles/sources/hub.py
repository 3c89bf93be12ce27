"""Models on the Hugging Face Hub: metadata by header bytes, through `huggingface_hub` and its own cache.

Only safetensors, GGUF, JSON, tokenizer and template files are ever downloaded, never pickles or code. The client's own
variables are honoured (token, endpoint, offline, cache, proxies).
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.errors import ModelNotFound
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.local import is_own_checkpoint, read_json_object
from twofold.profiles.sources.hub_errors import explained, refuse_offline
from twofold.profiles.sources.model_ref import ModelRef

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMEOUT_SECONDS = 8.0
ALLOWED_SUFFIXES = (".safetensors", ".json", ".jinja", ".model", ".txt")
# The best source of a GGUF repository: unquantised, else the finest quantisation.
_GGUF_ORDER = ("bf16", "f16", "f32", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q4_k_m", "q4_k_s", "q4_1", "q4_0")
_REMOTE_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class RepoFiles:
    """The files of one revision: commit id and sizes in bytes (None = not said)."""

    commit: str
    sizes: dict[str, int | None]


def endpoint() -> str | None:
    """The Hub's address where the environment names another one (read now, not when the client was imported)."""
    return os.environ.get("HF_ENDPOINT") or None


def repo_files(ref: ModelRef) -> RepoFiles:
    """List the files of a Hub model: one request.

    Raises:
        ModelNotFound: missing, gated, not reachable or not to be asked, with what to do.
    """
    from huggingface_hub import HfApi

    assert ref.repo is not None
    refuse_offline(ref.repo)
    with explained(ref.repo, ref.revision):
        info = HfApi(endpoint=endpoint()).model_info(
            ref.repo, revision=ref.revision, files_metadata=True, timeout=TIMEOUT_SECONDS
        )
    sizes = {item.rfilename: item.size for item in info.siblings or ()}
    return RepoFiles(info.sha or "", sizes)


def read_hub_spec(ref: ModelRef) -> ModelSpec:
    """The spec from `config.json` or a GGUF header; from the cache where the Hub cannot be reached.

    Raises:
        ModelNotFound: see `repo_files`. UnsupportedModel, CorruptFile: see the readers.
    """
    try:
        files = repo_files(ref)
    except ModelNotFound:
        cached = None if ref.file else cached_file(ref, "config.json")
        if cached is None:
            raise
        return _spec_of_config(ref, cached, None, "cached config.json")
    if ref.file is not None or "config.json" not in files.sizes:
        return _gguf_spec(ref, files)
    weights = [size for name, size in files.sizes.items() if is_weight_file(name)]
    known = None if not weights or None in weights else sum(size for size in weights if size is not None)
    return _spec_of_config(ref, download(ref, "config.json"), known, "config.json")


def is_hub_checkpoint(ref: ModelRef) -> bool:
    """Whether the repository's `config.json` is that of an own checkpoint; False for a GGUF repository.

    Raises:
        ModelNotFound: see `repo_files`.
    """
    try:
        if "config.json" not in repo_files(ref).sizes:
            return False
        path = download(ref, "config.json")
    except ModelNotFound:
        cached = cached_file(ref, "config.json")
        if cached is None:
            raise
        path = cached
    return is_own_checkpoint(read_json_object(path))


def _spec_of_config(ref: ModelRef, path: Path, weights_bytes: int | None, what: str) -> ModelSpec:
    from twofold.profiles.readers.config import spec_from_config

    return spec_from_config(
        read_json_object(path),
        name=str(ref.repo),
        facts_source=f"{what} of {ref.text} on the Hub",
        weights_bytes=weights_bytes,
    )


def _gguf_spec(ref: ModelRef, files: RepoFiles) -> ModelSpec:
    """The spec from the header of the repository's GGUF, fetched by ranges."""
    from twofold.profiles.readers.byte_window import ByteWindow
    from twofold.profiles.readers.gguf_header import parse_gguf_header
    from twofold.profiles.readers.local import spec_of_gguf_header

    name = gguf_file(ref, files)
    read_at, size = _ranges(ref, name, files)
    header = parse_gguf_header(ByteWindow(read_at, size, name, chunk=_REMOTE_CHUNK))
    return spec_of_gguf_header(
        header, name=str(ref.repo), facts_source=f"GGUF header of {name} in {ref.repo} on the Hub"
    )


def _ranges(ref: ModelRef, name: str, files: RepoFiles) -> tuple[Any, int]:
    """A reader of byte ranges of a remote file, and the file's size."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    assert ref.repo is not None
    size = files.sizes.get(name)
    if size is None:
        raise ModelNotFound(f"the Hub does not say how large {name} in {ref.repo} is")
    url = hf_hub_url(ref.repo, name, revision=files.commit or ref.revision, endpoint=endpoint())

    def read_at(offset: int, n: int) -> bytes:
        with explained(str(ref.repo), ref.revision):
            headers = build_hf_headers() | {"Range": f"bytes={offset}-{offset + n - 1}"}
            # Streamed, so that a server that ignores Range cannot make us read a whole model.
            with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_SECONDS) as response:
                hf_raise_for_status(response)
                if response.status_code != 206:
                    raise ModelNotFound(
                        f"the server does not give parts of {name}", hint="download the file and name it instead"
                    )
                return _limited(response.iter_bytes(), n)

    return read_at, size


def _limited(blocks: Iterable[bytes], n: int) -> bytes:
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) >= n:
            break
    return bytes(data[:n])


def gguf_file(ref: ModelRef, files: RepoFiles) -> str:
    """The GGUF that `ref` names, or the best one of the repository."""
    if ref.file is not None:
        if ref.file not in files.sizes:
            raise ModelNotFound(f"{ref.repo} has no file {ref.file}", hint=list_hint(ref))
        return ref.file
    names = [name for name in files.sizes if name.lower().endswith(".gguf") and "mmproj" not in name.lower()]
    if not names:
        raise ModelNotFound(
            f"{ref.repo} is not a model that can be read", needed="config.json or a .gguf file", hint=list_hint(ref)
        )
    return min(names, key=lambda name: (_gguf_rank(name), name))


def _gguf_rank(name: str) -> int:
    lower = name.lower()
    return next((rank for rank, kind in enumerate(_GGUF_ORDER) if kind in lower), len(_GGUF_ORDER))


def list_hint(ref: ModelRef) -> str:
    """Where to look when a file is not as expected."""
    return f"look at the files of {ref.repo} on the Hub"


def is_weight_file(name: str) -> bool:
    """Safetensors at the top; `consolidated*` repeats the shards in another layout."""
    return name.endswith(".safetensors") and "/" not in name and not name.startswith("consolidated")


def download(ref: ModelRef, name: str, bar: type | None = None) -> Path:
    """One file into the cache; `bar` is a tqdm class that is told the bytes."""
    from huggingface_hub import hf_hub_download

    assert ref.repo is not None
    options: dict[str, Any] = {
        "revision": ref.revision,
        "etag_timeout": TIMEOUT_SECONDS,
        "endpoint": endpoint(),
    }
    # Older clients have no way to be told what draws the progress; they draw their own.
    if bar is not None and "tqdm_class" in inspect.signature(hf_hub_download).parameters:
        options["tqdm_class"] = bar
    with explained(ref.repo, ref.revision):
        return Path(hf_hub_download(ref.repo, name, **options))


def cached_file(ref: ModelRef, name: str, commit: str | None = None) -> Path | None:
    """The file in the cache, or None."""
    from huggingface_hub import try_to_load_from_cache

    assert ref.repo is not None
    found = try_to_load_from_cache(ref.repo, name, revision=commit or ref.revision)
    return Path(found) if isinstance(found, str) else None
