"""The whole quantiser on a small random model: quality, determinism, interruption, full disks, two processes."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from twofold.engine.checkpoint import Checkpoint
from twofold.engine.evaluate.dequantize import member_weights
from twofold.engine.quantize import calibration
from twofold.engine.quantize.calibration import Calibration
from twofold.engine.quantize.group import quantize_slices
from twofold.engine.quantize.options import QuantizeOptions
from twofold.engine.quantize.pipeline import quantize
from twofold.engine.quantize.workspace import Done, left_by, partial_folder
from twofold.engine.text.tokenizer import Tokenizer
from twofold.engine.torch_ops import run_model
from twofold.engine.weights import open_weights
from twofold.profiles.errors import Busy, CorruptFile, InvalidOption, NotEnoughSpace, TwofoldError, UnsupportedModel
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.local import read_folder_spec

N_TOKENS = 900
SIX = QuantizeOptions(residual_bits=6)


@pytest.fixture(scope="module")
def spec(quantizable_folder: Path) -> ModelSpec:
    return read_folder_spec(quantizable_folder, name="tiny")


@pytest.fixture(scope="module")
def text(quantizable_folder: Path) -> Calibration:
    return calibration.shipped(Tokenizer.load(quantizable_folder), N_TOKENS, in_distribution=True)


@pytest.fixture(scope="module")
def finished(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return quantize(quantizable_folder, spec, tmp_path_factory.mktemp("out") / "ckpt", SIX, text)


def _digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def _kl(folder: Path, checkpoint: Path, spec: ModelSpec, *, residual: bool) -> float:
    tokens = torch.randint(3, spec.vocab_size, (200,), generator=torch.Generator().manual_seed(1))
    opened = Checkpoint.open(checkpoint)
    weights = {
        member.name: torch.from_numpy(np.array(value))
        for group in spec.groups
        for member, value in zip(
            group.members, member_weights(opened.group(group.name), use_residual=residual), strict=True
        )
    }
    with open_weights(folder) as source:
        reference = run_model(spec, tokens, source.tensor).double().log_softmax(-1)
        other = run_model(spec, tokens, source.tensor, linear=lambda g, m: weights[m.name]).double().log_softmax(-1)
    return float((reference.exp() * (reference - other)).sum(-1).mean())


def test_residual_restores_what_the_base_loses(quantizable_folder: Path, spec: ModelSpec, finished: Path) -> None:
    base = _kl(quantizable_folder, finished, spec, residual=False)
    split = _kl(quantizable_folder, finished, spec, residual=True)
    assert base > 1e-3
    assert split < base / 100


def test_the_folder_is_complete(finished: Path, text: Calibration) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"config.json", "tokenizer.json", "README.md", "dense.safetensors"} <= names
    assert not {name for name in names if name.startswith(".")} | names & {"state.json", "streams"}
    assert not partial_folder(finished).exists()
    config = json.loads((finished / "config.json").read_text(encoding="utf-8"))["quantization_config"]
    assert config["calibration"] == {"id": "shipped:smollm2-chat", "sha256": text.sha256, "tokens": N_TOKENS}
    assert config["residual"]["bits"] == 6
    assert config["residual"]["overrides"] == SIX.overrides


def test_same_bytes_twice_and_others_under_another_seed(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, finished: Path, tmp_path: Path
) -> None:
    again = quantize(quantizable_folder, spec, tmp_path / "a", SIX, text)
    assert _digests(again) == _digests(finished)
    other = quantize(quantizable_folder, spec, tmp_path / "b", QuantizeOptions(residual_bits=6, seed=1), text)
    assert _digests(other)["base-00001-of-00004.safetensors"] != _digests(finished)["base-00001-of-00004.safetensors"]


@pytest.mark.parametrize("slice_rows", [16, 48, 80])
def test_the_head_has_the_same_bytes_however_it_is_sliced(
    quantizable_folder: Path,
    spec: ModelSpec,
    text: Calibration,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slice_rows: int,
) -> None:
    """The shipped size takes this vocabulary of 259 whole, so that `finished` is what one slice gives."""
    monkeypatch.setattr("twofold.engine.quantize.assemble.SLICE_ROWS", slice_rows)
    in_slices = functools.partial(quantize_slices, slice_rows=slice_rows)
    monkeypatch.setattr("twofold.engine.quantize.layer.quantize_slices", in_slices)
    told: list[int] = []
    out = quantize(quantizable_folder, spec, tmp_path / "a", SIX, text, lambda done, total, what: told.append(done))
    assert _digests(out) == _digests(finished)
    assert told[-1] == sum(m.n_weights for group in spec.groups for m in group.members)
    assert len(set(told)) > -(-259 // slice_rows)


def test_a_finished_checkpoint_is_left_alone(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, finished: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.iterdir()}
    assert quantize(quantizable_folder, spec, finished, SIX, text) == finished
    assert {path: path.stat().st_mtime_ns for path in finished.iterdir()} == before


_CHILD = """
import os, signal, sys
from pathlib import Path
from twofold.engine.quantize import calibration
from twofold.engine.quantize.options import QuantizeOptions
from twofold.engine.quantize.pipeline import quantize
from twofold.engine.text.tokenizer import Tokenizer
from twofold.profiles.readers.local import read_folder_spec

source, out, stop_at, how = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
spec = read_folder_spec(source, name="tiny")
text = calibration.shipped(Tokenizer.load(source), 900, in_distribution=True)

def progress(done, total, what):
    if what == stop_at and done:
        if how == "wait":
            print("ready", flush=True)
            sys.stdin.read()
        os.kill(os.getpid(), getattr(signal, how))

quantize(source, spec, out, QuantizeOptions(residual_bits=6), text, progress)
"""


def _child(source: Path, out: Path, stop_at: str, how: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(source), str(out), stop_at, how],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop_at", "how"),
    [("layer 1/3", "SIGKILL"), ("layer 3/3", "SIGINT"), ("head", "SIGKILL"), ("finishing", "SIGKILL")],
)
def test_an_interrupted_run_ends_with_the_same_bytes(
    quantizable_folder: Path,
    spec: ModelSpec,
    text: Calibration,
    finished: Path,
    tmp_path: Path,
    stop_at: str,
    how: str,
) -> None:
    out = tmp_path / "ckpt"
    child = _child(quantizable_folder, out, stop_at, how)
    child.communicate(timeout=120)
    assert child.returncode != 0
    assert not out.exists()
    assert partial_folder(out).is_dir()
    done = {"layer 1/3": 0, "layer 3/3": 2, "head": 3, "finishing": 4}[stop_at]
    left = left_by(out, SIX)
    assert left.layers == done
    assert left.disk_bytes == sum(file.stat().st_size for file in partial_folder(out).rglob("*") if file.is_file()) > 0
    assert left_by(out, QuantizeOptions(residual_bits=6, seed=9)) == Done()
    seen: list[str] = []
    quantize(quantizable_folder, spec, out, SIX, text, lambda done, total, what: seen.append(what))
    assert stop_at in seen
    if stop_at != "layer 1/3":
        assert "layer 1/3" not in seen, "a finished layer was done again"
    assert _digests(out) == _digests(finished)
    assert not partial_folder(out).exists()


@pytest.mark.slow
def test_two_processes_do_not_quantise_into_one_folder(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, tmp_path: Path
) -> None:
    out = tmp_path / "ckpt"
    child = _child(quantizable_folder, out, "layer 2/3", "wait")
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(Busy, match="quantising into ckpt") as caught:
            quantize(quantizable_folder, spec, out, SIX, text)
        assert str(child.pid) in str(caught.value.found)
    finally:
        child.kill()
        child.communicate(timeout=30)
    quantize(quantizable_folder, spec, out, SIX, text)
    assert (out / "config.json").is_file()


def test_changed_options_are_noticed(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ckpt"

    def stop(done: int, total: int, what: str) -> None:
        if what == "layer 2/3":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(quantizable_folder, spec, out, QuantizeOptions(residual_bits=4), text, stop)
    with pytest.raises(TwofoldError, match="another kind") as caught:
        quantize(quantizable_folder, spec, out, SIX, text)
    assert (caught.value.found, caught.value.needed) == ("residual bits 4", "residual bits 6")
    quantize(quantizable_folder, spec, out, SIX, text, force=True)
    assert _digests(out) == _digests(finished)


def test_a_foreign_folder_is_refused_and_untouched(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("precious", encoding="utf-8")
    with pytest.raises(TwofoldError, match="not empty"):
        quantize(quantizable_folder, spec, tmp_path, SIX, text, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(TwofoldError, match="is a file"):
        quantize(quantizable_folder, spec, tmp_path / "mine.txt", SIX, text)
    foreign = tmp_path / "x.partial"
    foreign.mkdir()
    (foreign / "notes").write_text("precious", encoding="utf-8")
    with pytest.raises(TwofoldError, match="not an unfinished quantisation"):
        quantize(quantizable_folder, spec, tmp_path / "x", SIX, text, force=True)
    assert (foreign / "notes").read_text(encoding="utf-8") == "precious"


_LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n" + _CHILD


@pytest.mark.slow
@pytest.mark.parametrize("limit", [20_000, 100_000])
def test_a_full_disk_is_said_and_the_run_can_go_on(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, finished: Path, tmp_path: Path, limit: int
) -> None:
    """No file may grow beyond the limit: writing fails as on a full disk, at the dense file or at a stream."""
    out = tmp_path / "ckpt"
    code = _LIMITED.format(limit=limit) + "\n"
    command = [sys.executable, "-c", code, str(quantizable_folder), str(out), "never", "wait"]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "NotEnoughSpace" in child.stderr, child.stderr
    assert "the disk is full" in child.stderr
    assert not out.exists()
    quantize(quantizable_folder, spec, out, SIX, text)
    assert _digests(out) == _digests(finished)


def test_other_os_errors_keep_their_name(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, tmp_path: Path
) -> None:
    def fail(done: int, total: int, what: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        quantize(quantizable_folder, spec, tmp_path / "ckpt", SIX, text, fail)

    def full(done: int, total: int, what: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(NotEnoughSpace, match="the disk is full"):
        quantize(quantizable_folder, spec, tmp_path / "ckpt", SIX, text, full)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, tmp_path: Path, bad: float
) -> None:
    broken = shutil.copytree(quantizable_folder, tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"].copy()
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = bad
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CorruptFile, match="not finite"):
        quantize(broken, spec, tmp_path / "ckpt", SIX, text)
    assert not (tmp_path / "ckpt").exists()


def test_an_architecture_without_a_graph_is_refused_before_the_weights(
    spec: ModelSpec, text: Calibration, tmp_path: Path
) -> None:
    import dataclasses

    planned = dataclasses.replace(spec, architecture="gemma4", runnable_reason="no graph for gemma4")
    with pytest.raises(UnsupportedModel, match="gemma4"):
        quantize(tmp_path / "no such file", planned, tmp_path / "ckpt", SIX, text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"residual_bits": 3}, {"residual_bits": 9}, {"head_bits": 2}, {"seed": -1}])
def test_impossible_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidOption):
        QuantizeOptions(**options)


def test_other_architectures_quantise_too(tiny_folder: Path, tmp_path: Path) -> None:
    """Biases, norms on heads, an untied head: every tensor of the format is there and has its shape."""
    folder = shutil.copytree(tiny_folder, tmp_path / "source")
    spec = read_folder_spec(folder, name="tiny")
    _byte_tokenizer(folder)
    generator = np.random.default_rng(0)
    ids = tuple(tuple(int(i) for i in generator.integers(0, spec.vocab_size, 60)) for _ in range(5))
    out = quantize(folder, spec, tmp_path / "ckpt", SIX, Calibration("test", "0" * 64, ids))
    Checkpoint.open(out)
    assert _kl(folder, out, spec, residual=True) < 0.05 * _kl(folder, out, spec, residual=False)


def _byte_tokenizer(folder: Path) -> None:
    import tokenizers

    inner = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate("abcdefgh")}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.save(str(folder / "tokenizer.json"))
