"""The folder of a quantisation at work: one owner, resumed at the last finished layer, finished by one rename."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.errors import CorruptFile, TwofoldError
from twofold.profiles.files import write_atomically
from twofold.profiles.locks import exclusive

if TYPE_CHECKING:
    from twofold.engine.quantize.options import QuantizeOptions
    from twofold.engine.quantize.rowstore import RowFile

STATE_FILE = "state.json"
STREAMS = "streams"
BASES = "bases"
REFINE_PASSES = "refine passes"
"""A key of the identity, only of runs that refine: others go on with what they noted before it was known."""


def partial_folder(out_dir: Path) -> Path:
    """Where an unfinished quantisation to `out_dir` lives."""
    return out_dir.with_name(out_dir.name + ".partial")


def is_finished(out_dir: Path) -> bool:
    """Whether `out_dir` holds a finished checkpoint (its `config.json` names twofold)."""
    from twofold.profiles.readers.local import is_own_checkpoint, read_json_object

    config = out_dir / "config.json"
    return config.is_file() and is_own_checkpoint(read_json_object(config))


@dataclass(frozen=True, slots=True)
class Done:
    """What an interrupted run left: steps that are done (`schedule.Schedule`; without refining a step is a layer, and
    the head one more), bytes on disk.
    """

    layers: int = 0
    disk_bytes: int = 0


def left_by(out_dir: Path, options: QuantizeOptions) -> Done:
    """What is done already of a quantisation to `out_dir`, as far as can be told before the source is read.

    A run with other options, or a damaged one, counts as nothing; `Workspace.open` refuses it.
    """
    folder = partial_folder(out_dir)
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        identity, layers = state["identity"], int(state["layers_done"])
        known = (identity["residual bits"], identity["head bits"], identity["seed"], identity.get(REFINE_PASSES, 0))
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    except (OSError, ValueError, TypeError, KeyError):
        return Done()
    wanted = (options.residual_bits, options.head_bits, options.seed, options.refine_passes)
    if known != wanted or layers < 0:
        return Done()
    return Done(layers, sum(sizes))


def check_target(out_dir: Path) -> None:
    """Refuse to touch what is not ours.

    Raises:
        TwofoldError: when `out_dir` is a file, or a folder that holds something else than a twofold checkpoint.
    """
    if out_dir.is_dir():
        if any(out_dir.iterdir()) and not is_finished(out_dir):
            held = sorted(entry.name for entry in out_dir.iterdir())
            raise TwofoldError(
                f"{out_dir} is not empty and not a twofold checkpoint",
                found=", ".join(held[:4]) + (" …" if len(held) > 4 else ""),
                needed="an empty or new folder",
                hint="choose another folder with -o",
            )
    elif out_dir.exists():
        raise TwofoldError(f"{out_dir} is a file", needed="a folder", hint="choose another folder with -o")


@contextlib.contextmanager
def owned(out_dir: Path) -> Iterator[None]:
    """Be the only process that quantises into `out_dir`.

    Raises:
        Busy: another one does.
    """
    with exclusive(out_dir.with_name(f".{out_dir.name}.lock"), f"quantising into {out_dir.name}"):
        yield


class Workspace:
    """The `.partial` folder. `identity` is what makes a resumed run the same run; `layers_done` how far it got."""

    def __init__(self, out_dir: Path, identity: Mapping[str, Any]) -> None:
        self.out_dir, self.folder = out_dir, partial_folder(out_dir)
        self.identity = dict(identity)
        self.layers_done = -1
        """−1: nothing; 0: the streams hold the embeddings; n: step n − 1 of the schedule is done (without refining:
        layer n − 1 is written; …; layers + 1: the head too).
        """
        self.notes: dict[str, Any] = {}

    def open(self, *, force: bool = False) -> None:
        """Create the folder, or take up what an interrupted run left.

        Raises:
            TwofoldError: when what is there was made from another source or with other options, and not `force`.
        """
        state = self._read_state(force)
        if state is not None and state["identity"] != self.identity:
            if not force:
                raise self._other_run(state["identity"])
            state = None
        if state is None:
            if self.folder.exists():
                shutil.rmtree(self.folder)
            self.streams.mkdir(parents=True)
            self._save()
            return
        self.layers_done, self.notes = int(state["layers_done"]), dict(state["notes"])
        self.streams.mkdir(exist_ok=True)
        current = {self.stream_path(name, self.layers_done) for name in ("original", "prefix")}
        for path in (*self.streams.iterdir(), *self.folder.glob(".*.part")):
            if path not in current:
                path.unlink()

    @property
    def streams(self) -> Path:
        return self.folder / STREAMS

    @property
    def bases(self) -> Path:
        """Of a draft that is refined: its bases between the walks."""
        return self.folder / BASES

    def _read_state(self, force: bool) -> dict[str, Any] | None:
        path = self.folder / STATE_FILE
        if not path.is_file():
            if self.folder.exists() and any(self.folder.iterdir()) and not (self.folder / STREAMS).is_dir():
                raise TwofoldError(
                    f"{self.folder} holds something that is not an unfinished quantisation",
                    needed="a place for the work files",
                    hint=f"move {self.folder} away, or choose another folder with -o",
                )
            return None
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            if set(state) == {"identity", "layers_done", "notes"}:
                return dict(state)
        except (ValueError, TypeError):
            pass
        if force:
            return None
        raise CorruptFile(f"{path} is damaged", hint="start again with --force")

    def _other_run(self, found: Mapping[str, Any]) -> TwofoldError:
        keys = [key for key in (*self.identity, *found) if self.identity.get(key) != found.get(key)]
        key = keys[0]
        return TwofoldError(
            f"{self.folder.name} is an unfinished quantisation of another kind",
            found=f"{key} {found.get(key, 'none')}",
            needed=f"{key} {self.identity.get(key, 'none')}",
            hint="finish it with the earlier options, start again with --force, or choose another folder with -o",
        )

    def stream_path(self, name: str, step: int) -> Path:
        """The file of a hidden-state stream at the start of a step."""
        return self.streams / f"{name}-{step:05d}.f32"

    def create_stream(self, name: str, step: int, n_rows: int, width: int) -> RowFile:
        # Row files are torch's; asking whether a checkpoint is finished must not load it.
        from twofold.engine.quantize.rowstore import RowFile

        return RowFile(self.stream_path(name, step), n_rows, width, create=True)

    def open_stream(self, name: str, n_rows: int, width: int) -> RowFile:
        """The stream at the start of the next step.

        Raises:
            CorruptFile: when the file is missing or has another size than it was written with.
        """
        from twofold.engine.quantize.rowstore import RowFile

        path = self.stream_path(name, self.layers_done)
        if not path.is_file() or path.stat().st_size != n_rows * width * 4:
            raise CorruptFile(f"the work file {path} is missing or damaged", hint="start again with --force")
        return RowFile(path, n_rows, width)

    def advance(self, layers_done: int) -> None:
        """Note that everything up to `layers_done` is on disk."""
        self.layers_done = layers_done
        self._save()

    def _save(self) -> None:
        state = {"identity": self.identity, "layers_done": self.layers_done, "notes": self.notes}
        write_atomically(self.folder / STATE_FILE, json.dumps(state, indent=1))

    def publish(self) -> Path:
        """Give the finished folder its name; an earlier checkpoint there is replaced only now."""
        shutil.rmtree(self.streams, ignore_errors=True)
        shutil.rmtree(self.bases, ignore_errors=True)
        if self.out_dir.exists():
            if any(self.out_dir.iterdir()):
                aside = self.out_dir.with_name(f".{self.out_dir.name}.old")
                shutil.rmtree(aside, ignore_errors=True)
                os.rename(self.out_dir, aside)
                os.rename(self.folder, self.out_dir)
                shutil.rmtree(aside, ignore_errors=True)
            else:
                self.out_dir.rmdir()
                os.rename(self.folder, self.out_dir)
        else:
            os.rename(self.folder, self.out_dir)
        (self.out_dir / STATE_FILE).unlink(missing_ok=True)
        return self.out_dir
