"""`quantize`: from a model's weights to a twofold checkpoint, layer by layer, resumable, in bounded memory."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.checkpoint.layout import DENSE_FILE, EMBEDDING, expected_tensors, shard_name
from twofold.engine.checkpoint.mapped import MappedTensors
from twofold.engine.checkpoint.shards import ShardSet
from twofold.engine.checkpoint.writer import finish, write_layer
from twofold.engine.graph.registry import graph_of
from twofold.engine.quantize import levels as level_fit
from twofold.engine.quantize.assemble import dense_tensors, embedding_slices, packed_rows, split_weights
from twofold.engine.quantize.bases import BaseStore, GivenBase
from twofold.engine.quantize.calibration import Calibration
from twofold.engine.quantize.draft_stream import DraftModel
from twofold.engine.quantize.group import GROUP_SIZE, GroupRotations, QuantizedGroup, make_rotations
from twofold.engine.quantize.layer import ORIGINAL, PREFIX, LayerJob, LayerRun, Texts
from twofold.engine.quantize.lloyd_max import Levels
from twofold.engine.quantize.model_card import write_companions
from twofold.engine.quantize.options import Progress, QuantizeOptions
from twofold.engine.quantize.refine import RefineJob, Refiner, Told
from twofold.engine.quantize.rowstore import RowFile, RowStore
from twofold.engine.quantize.schedule import Schedule, Task
from twofold.engine.quantize.stages import Stage, record
from twofold.engine.quantize.workspace import REFINE_PASSES, Workspace, check_target, is_finished, owned
from twofold.engine.weights import open_weights
from twofold.engine.weights.source import WeightSource
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.errors import NotEnoughSpace
from twofold.profiles.model_spec import LinearGroup, ModelSpec

STORE_RAM_BYTES = 512 << 20
"""Values between a layer's stages stay in RAM up to this size, then go to the work folder."""

REFINE_PASS_LAYERS = 2
"""What a pass of refining counts for in the progress, in walks over the layers: it takes about twice as long."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def quantize(
    source_path: Path,
    spec: ModelSpec,
    out_dir: Path,
    options: QuantizeOptions,
    calibration: Calibration,
    progress: Progress | None = None,
    *,
    force: bool = False,
    device: torch.device | str | None = None,
) -> Path:
    """Quantise a local model into the checkpoint folder `out_dir` and return it.

    An interrupted run is taken up at the last finished layer, or pass of refining. A finished checkpoint there is
    returned as it is unless `force`.

    Args:
        source_path: a safetensors folder or a GGUF file. spec: its facts.
        calibration: the token ids to calibrate with, and where they come from.
        progress: told after every group of Linears.
        force: start again over another unfinished or a finished quantisation.

    Raises:
        UnsupportedModel: an architecture without a graph (before any weight is read).
        CorruptFile: damaged weights, or values that are not finite.
        NotEnoughSpace: the disk is full; what is finished stays for the next run.
        Busy: another process quantises into the same folder.
        TwofoldError: `out_dir` holds something else, or an unfinished run with other options.
    """
    graph_of(spec)
    check_target(out_dir)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with owned(out_dir):
        if is_finished(out_dir) and not force:
            return out_dir
        with open_weights(source_path) as source, _disk_full_explained(out_dir):
            source.check_complete(spec)
            run = _Run(source, spec, out_dir, options, calibration, progress, force, _device(device))
            return run.run()


def _device(device: torch.device | str | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


@contextlib.contextmanager
def _disk_full_explained(out_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise NotEnoughSpace(
            f"the disk is full: quantising into {out_dir} stopped, finished layers are kept",
            found=f"{_free_bytes(out_dir.parent) / 1e9:.2f} GB free",
            hint="free some space and run the same command again, it goes on where it stopped",
        ) from error


def _free_bytes(folder: Path) -> int:
    import shutil

    return shutil.disk_usage(folder).free


class _Run:
    """One call of `quantize`."""

    def __init__(
        self,
        source: WeightSource,
        spec: ModelSpec,
        out_dir: Path,
        options: QuantizeOptions,
        calibration: Calibration,
        progress: Progress | None,
        force: bool,
        device: torch.device,
    ) -> None:
        self.source, self.spec, self.options, self.calibration = source, spec, options, calibration
        self.device, self.force = device, force
        self.stream_texts = calibration.for_streams((ORIGINAL, PREFIX))
        self.texts = {name: Texts(tuple(len(text) for text in texts)) for name, texts in self.stream_texts.items()}
        self.source_sha256 = source.sha256()
        self.work = Workspace(out_dir, self._identity())
        self._progress = progress or (lambda done, total, what: None)
        self.schedule = Schedule(spec.n_layers, options.refine_passes)
        self._n_weights = sum(self._weights_of(*step) for step in self.schedule.from_step(0))
        self.bases = BaseStore(self.work.bases, self.device)
        self._done = 0
        self._loaded: dict[str, Tensor] = {}

    def _identity(self) -> dict[str, Any]:
        """What must be equal for a resumed run to give the bytes of an uninterrupted one."""
        refining = {REFINE_PASSES: self.options.refine_passes} if self.options.refine_passes else {}
        return refining | {
            "source": self.source_sha256,
            "residual bits": self.options.residual_bits,
            "head bits": self.options.head_bits,
            "seed": self.options.seed,
            "calibration": self.calibration.sha256,
            "calibration tokens": self.calibration.n_tokens,
            "device": self.device.type,
            "format": 2,
        }

    def run(self) -> Path:
        self.work.open(force=self.force)
        if self.work.layers_done < 0:
            self._start()
        levels = Levels(**self.work.notes)
        config = self._config(levels)
        for number, (task, layer) in enumerate(self.schedule.from_step(0)):
            if number < self.work.layers_done:
                self._done += self._weights_of(task, layer)
            else:
                self._step(number, task, layer, levels, config)
        self._progress(self._done, self._n_weights, "finishing")
        source_config = write_companions(self.work.folder, self.source.path, self.spec, config)
        finish(self.work.folder, source_config, config)
        return self.work.publish()

    def _start(self) -> None:
        """Levels, the dense file, and both streams."""
        self._progress(0, self._n_weights, "fitting the levels")
        levels = level_fit.fit_levels(self.spec, self.options.seed, self.source, self.device)
        self.work.notes = dataclasses.asdict(levels)
        self._write_dense(self._config(levels))
        self._start_streams(0)
        self.work.advance(0)

    def _start_streams(self, step: int) -> None:
        """Both streams at the embeddings, for a walk that begins with `step`."""
        for name, texts in self.stream_texts.items():
            stream = self.work.create_stream(name, step, self.texts[name].n_rows, self.spec.hidden_size)
            start = 0
            for text in texts:
                stream.write(start, self._embedded(text))
                start += len(text)
            self._close([stream])

    def _embedded(self, text: Sequence[int]) -> Tensor:
        """A text's embeddings as stored; mapped, so that only the rows of its tokens are read."""
        embedding = MappedTensors(self.work.folder / DENSE_FILE).array(EMBEDDING)
        rows = torch.from_numpy(embedding[np.asarray(text)].astype(np.float32))
        return rows if self.spec.embedding_scale is None else rows.mul_(self.spec.embedding_scale)

    def _write_dense(self, config: CheckpointConfig) -> None:
        with self._shards(config, DENSE_FILE) as shards:
            for name, array in dense_tensors(self.spec, config, self.source.tensor).items():
                shards.write(name, array)
            for first, rows in embedding_slices(self.spec, self.source.rows):
                shards.write(EMBEDDING, rows, first)

    def _shards(self, config: CheckpointConfig, *files: str) -> ShardSet:
        layouts = expected_tensors(self.spec, config)
        return ShardSet(self.work.folder, {name: layout for name, layout in layouts.items() if layout.file in files})

    def _config(self, levels: Levels) -> CheckpointConfig:
        return CheckpointConfig(
            residual_bits=self.options.residual_bits,
            group_size=GROUP_SIZE,
            base_levels=levels.integers,
            overrides=self.options.overrides,
            seed=self.options.seed,
            source={
                "name": self.spec.name,
                "dtype": self.source.dtype_note(),
                "sha256": self.source_sha256,
            },
            calibration={
                "id": self.calibration.id,
                "sha256": self.calibration.sha256,
                "tokens": self.calibration.n_tokens,
                **({"refine_passes": self.options.refine_passes} if self.options.refine_passes else {}),
            },
            tokenizer_sha256=self.calibration.tokenizer_sha256,
        )

    def _weights_of(self, task: Task, layer: int) -> int:
        """What a step counts for in the progress, in weights quantised."""
        if task == "refine":
            return self.options.refine_passes * REFINE_PASS_LAYERS * self.spec.n_decoder_weights
        groups = self.spec.layers[layer].groups if layer < self.spec.n_layers else (self.spec.head,)
        return sum(m.n_weights for group in groups for m in group.members)

    def _step(self, number: int, task: Task, layer: int, levels: Levels, config: CheckpointConfig) -> None:
        """One step of the schedule: its files and the streams behind it are written, then it is noted as done."""
        n_layers = self.spec.n_layers
        what = "head" if layer == n_layers else f"layer {layer + 1}/{n_layers}"
        what = f"draft, {what}" if task == "base" else what
        first = self._done

        def count(n_weights: int, now: str = what) -> None:
            self._done += n_weights
            self._progress(self._done, self._n_weights, now)

        if task == "refine":
            self._refine(lambda share, now: count(first + int(share * self._weights_of(task, layer)) - self._done, now))
            self._start_streams(number + 1)
        else:
            count(0)
            run = self._head_layer if layer == n_layers else self._decoder_layer
            run(layer, task, levels, config, count)
        self.work.advance(number + 1)
        for name in (ORIGINAL, PREFIX):
            self.work.stream_path(name, number).unlink(missing_ok=True)

    def _refine(self, told: Told) -> None:
        """Train the scales of all bases."""
        bases = self.bases
        self._loaded.clear()
        draft = DraftModel(
            model=self.spec,
            weight=self._tensor,
            embed=self._embedded,
            rotations=self._rotations,
            levels=bases.levels,
            device=self.device,
        )
        state = self.work.bases / "training.pt"
        job = RefineJob(
            draft, bases.scales, self.calibration.texts, self.options.refine_passes, self.options.seed, state
        )
        refiner = Refiner(
            job,
            lambda n_rows: RowStore(self.work.streams, n_rows, STORE_RAM_BYTES),
            lambda share, what: told(share, f"refining the draft, {what}"),
        )
        bases.keep_refined(refiner.run().scales)
        state.unlink(missing_ok=True)

    def _decoder_layer(
        self, index: int, task: Task, levels: Levels, config: CheckpointConfig, count: Callable[[int], None]
    ) -> None:
        shards: dict[str, SplitWeights] = {}

        def on_base(group: LinearGroup, base: GivenBase) -> None:
            self.bases.keep(group.name, base)
            count(sum(member.n_weights for member in group.members))

        def on_group(group: LinearGroup, rotations: GroupRotations, first: int, result: QuantizedGroup) -> None:
            shards[group.name] = split_weights(group, rotations, result, config)
            count(sum(member.n_weights for member in group.members))

        graph, layer = graph_of(self.spec), self.spec.layers[index]
        stages = record(lambda ops, x: graph.decoder_layer(ops, self.spec, layer, x))
        job = self._job(stages, levels, on_group)
        if task == "base":
            job = replace(job, on_base=on_base)
        elif task == "residual":
            job = replace(job, given_base=lambda group: self.bases.refined(group.name))
        self._run_layer(job, has_result=True)
        if task != "base":
            write_layer(self.work.folder, index, self.spec.n_layers + 1, shards)

    def _head_layer(
        self, index: int, task: Task, levels: Levels, config: CheckpointConfig, count: Callable[[int], None]
    ) -> None:
        """The head's packed rows go to disk slice by slice."""
        stages = record(lambda ops, x: graph_of(self.spec).head(ops, self.spec, x))
        files = (shard_name(part, index, index + 1) for part in ("base", "residual"))
        with self._shards(config, *files) as shards:

            def on_rows(group: LinearGroup, rotations: GroupRotations, first: int, result: QuantizedGroup) -> None:
                for name, tile, array in packed_rows(group, first, result, config.bits_of(group.name)):
                    shards.write(name, array, tile)
                count(result.base.codes.numel())

            self._run_layer(self._job(stages, levels, on_rows), has_result=False)

    def _job(
        self,
        stages: Sequence[Stage],
        levels: Levels,
        on_group: Callable[[LinearGroup, GroupRotations, int, QuantizedGroup], None],
    ) -> LayerJob:
        return LayerJob(
            model=self.spec,
            stages=stages,
            texts=self.texts,
            weight=self._small_weight,
            group_weights=self._group_weights,
            row_weights=self._row_weights,
            rotations=self._rotations,
            levels=levels,
            bits_of=self.options.bits_of,
            on_group=on_group,
            device=self.device,
        )

    def _rotations(self, group: LinearGroup) -> GroupRotations:
        is_head = group.name == self.spec.head.name
        return make_rotations(self.options.seed, group, is_head=is_head, device=self.device)

    def _run_layer(self, job: LayerJob, *, has_result: bool) -> None:
        rows, width = {name: texts.n_rows for name, texts in self.texts.items()}, self.spec.hidden_size
        self._loaded.clear()
        store = RowStore(self.work.streams, max(rows.values()), STORE_RAM_BYTES)
        streams = [self.work.open_stream(name, rows[name], width) for name in (ORIGINAL, PREFIX)]
        results: list[RowFile] = []
        try:
            if has_result:
                step = self.work.layers_done + 1
                results = [self.work.create_stream(name, step, rows[name], width) for name in (ORIGINAL, PREFIX)]
            LayerRun(job, streams[0], streams[1], store).run((results[0], results[1]) if results else None)
        finally:
            store.clear()
            self._close(streams)
            self._close(results)

    @staticmethod
    def _close(files: list[RowFile]) -> None:
        for file in files:
            file.sync()
            file.close()

    def _small_weight(self, name: str) -> Tensor:
        """Norms and biases, kept while their layer runs."""
        if name not in self._loaded:
            self._loaded[name] = self._tensor(name)
        return self._loaded[name]

    def _group_weights(self, group: LinearGroup) -> dict[str, Tensor]:
        """Member name → [out, K] on the device."""
        return {m.name: self._tensor(f"{m.name}.weight") for m in group.members}

    def _row_weights(self, group: LinearGroup, start: int, stop: int) -> Tensor:
        (member,) = group.members
        return self._on_device(self.source.rows(f"{member.name}.weight", slice(start, stop)))

    def _tensor(self, name: str) -> Tensor:
        return self._on_device(self.source.tensor(name))

    def _on_device(self, values: NDArray[np.float32]) -> Tensor:
        # torch warns about arrays that are views of a read-only map, so these are copied.
        return torch.from_numpy(np.require(values, requirements=["C", "W"])).to(self.device)
