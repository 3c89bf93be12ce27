"""Files of a Hub model into the Hub client's own cache: what is wanted, how much that is, fetching with progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twofold.profiles.errors import ModelNotFound, UnsafeFile
from twofold.profiles.figures import Figure, reasoned, reported, unknown
from twofold.profiles.readers.local import read_json_object
from twofold.profiles.sources.hub import (
    ALLOWED_SUFFIXES,
    TIMEOUT_SECONDS,
    RepoFiles,
    cached_file,
    download,
    endpoint,
    gguf_file,
    is_weight_file,
    list_hint,
    repo_files,
)
from twofold.profiles.sources.hub_errors import explained
from twofold.profiles.sources.local import PICKLE_SUFFIXES
from twofold.profiles.sources.model_ref import ModelRef, slug
from twofold.profiles.sources.wheel import Progress


def _wanted(ref: ModelRef, files: RepoFiles) -> list[str]:
    """What `fetch` downloads.

    Raises:
        UnsafeFile: the repository has only pickled weights.
    """
    if ref.file is not None or "config.json" not in files.sizes:
        return [gguf_file(ref, files)]
    if not any(is_weight_file(name) for name in files.sizes):
        pickles = [name for name in files.sizes if name.lower().endswith(PICKLE_SUFFIXES)]
        if pickles:
            raise UnsafeFile(
                f"{ref.repo} holds only pickled weights: loading them could run any code",
                found=", ".join(pickles[:4]),
                needed="*.safetensors",
                hint="use a repository of the same model that has safetensors",
            )
        raise ModelNotFound(f"{ref.repo} holds no weights", needed="*.safetensors", hint=list_hint(ref))
    return [
        name
        for name in files.sizes
        if "/" not in name and name.endswith(ALLOWED_SUFFIXES) and not name.startswith("consolidated")
    ]


def hub_download_bytes(ref: ModelRef) -> Figure:
    """The bytes that `fetch_hub` would download; unknown, with the reason, where the Hub cannot be asked."""
    try:
        files = repo_files(ref)
    except ModelNotFound as error:
        return unknown("B", error.what)
    missing = [name for name in _wanted(ref, files) if cached_file(ref, name, files.commit) is None]
    sizes = [files.sizes[name] for name in missing]
    if any(size is None for size in sizes):
        return unknown("B", "the Hub does not say how large the files are")
    if not missing:
        return reasoned(0, "B", "already in the Hub's cache")
    return reported(sum(size for size in sizes if size is not None), "B", f"file sizes of {ref.repo} on the Hub")


def fetch_hub(ref: ModelRef, progress: Progress | None = None) -> Path:
    """The local snapshot folder, or the GGUF file, in the Hub's own cache; resumes what was interrupted.

    Raises:
        ModelNotFound, UnsafeFile: see `repo_files` and `_wanted`.
    """
    try:
        files = repo_files(ref)
    except ModelNotFound:
        cached = _complete_snapshot(ref)
        if cached is None:
            raise
        return cached
    wanted = _wanted(ref, files)
    sizes = {name: files.sizes[name] or 0 for name in wanted}
    counter = None if progress is None else _Counter(progress, sum(sizes.values()))
    folders: set[Path] = set()
    # One file after the other, small ones first: a wrong tokenizer is noticed before the weights are moved.
    for name in sorted(wanted, key=lambda item: sizes[item]):
        path = download(ref, name, None if counter is None else counter.bar())
        if counter is not None:
            counter.finish_file(sizes[name])
        if name.endswith(".gguf"):
            return path
        folders.add(path.parent)
    if len(folders) != 1:
        raise ModelNotFound(f"{ref.repo} changed while it was being downloaded", hint="run the same command again")
    return folders.pop()


def _complete_snapshot(ref: ModelRef) -> Path | None:
    """What an earlier `fetch_hub` left in the cache, if all of it is there."""
    from huggingface_hub import constants

    assert ref.repo is not None
    root = Path(constants.HF_HUB_CACHE) / f"models--{ref.repo.replace('/', '--')}"
    named = root / "refs" / (ref.revision or "main")
    commit = named.read_text("utf-8").strip() if named.is_file() else str(ref.revision)
    folder = root / "snapshots" / commit
    ggufs = [folder / ref.file] if ref.file else sorted(folder.glob("*.gguf"))
    if not (folder / "config.json").is_file():
        return next((path for path in ggufs if path.is_file()), None)
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return folder if any(folder.glob("*.safetensors")) else None
    shards = set(read_json_object(index).get("weight_map", {}).values())
    return folder if all((folder / str(shard)).is_file() for shard in shards) else None


class _Counter:
    """Bytes over several files, from what the Hub client tells its progress bar."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._finished = self._current = 0

    def add(self, n: float) -> None:
        self._current += int(n)
        self._progress(min(self._finished + self._current, self._total), self._total)

    def finish_file(self, size: int) -> None:
        self._finished += size
        self._current = 0
        self._progress(min(self._finished, self._total), self._total)

    def bar(self) -> type:
        """A silent progress bar that reports here."""
        from tqdm.auto import tqdm  # type: ignore[import-untyped]

        counter = self

        class Bar(tqdm):  # type: ignore[misc]
            def __init__(self, *args: Any, **options: Any) -> None:
                options.pop("name", None)
                super().__init__(*args, **(options | {"disable": True}))

            def update(self, n: float | None = 1) -> None:
                counter.add(n or 0)

        return Bar


def download_hub_file(repo: str, name: str, revision: str, folder: Path) -> Path:
    """One file of a Hub model into `folder` (not into the Hub's cache).

    Raises:
        ModelNotFound: see `repo_files`.
    """
    from huggingface_hub import hf_hub_download

    # The client tries a download again for half a minute; asking first tells at once that there is no Hub.
    repo_files(ModelRef("hub", repo, slug(name), repo=repo, revision=revision))
    with explained(repo, revision):
        return Path(
            hf_hub_download(
                repo, name, revision=revision, local_dir=folder, etag_timeout=TIMEOUT_SECONDS, endpoint=endpoint()
            )
        )
