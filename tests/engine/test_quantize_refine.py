"""Refining the draft: what it trains and what not, that the draft gets better, interruption, divergence."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from twofold.engine.checkpoint import Checkpoint
from twofold.engine.evaluate.dequantize import member_weights
from twofold.engine.evaluate.ranks import mixed_attention
from twofold.engine.graph.registry import graph_of
from twofold.engine.quantize import calibration, refine
from twofold.engine.quantize.calibration import Calibration
from twofold.engine.quantize.draft_stream import DraftModel
from twofold.engine.quantize.group import make_rotations
from twofold.engine.quantize.options import QuantizeOptions
from twofold.engine.quantize.pipeline import quantize
from twofold.engine.quantize.refine import RefineJob, Refiner, dealt, learning_rate, pieces
from twofold.engine.quantize.rowstore import RowStore
from twofold.engine.quantize.schedule import Schedule
from twofold.engine.quantize.workspace import Done, left_by, partial_folder
from twofold.engine.text.tokenizer import Tokenizer
from twofold.engine.torch_ops import TorchOps, attention_scale, causal_attention
from twofold.engine.weights import open_weights
from twofold.kernels.naive import packing
from twofold.profiles.errors import InvalidOption, TwofoldError
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.local import read_folder_spec

PLAIN, REFINED = QuantizeOptions(residual_bits=6), QuantizeOptions(residual_bits=6, refine_passes=3)


@pytest.fixture(scope="module")
def spec(quantizable_folder: Path) -> ModelSpec:
    return read_folder_spec(quantizable_folder, name="tiny")


@pytest.fixture(scope="module")
def text(quantizable_folder: Path) -> Calibration:
    return calibration.shipped(Tokenizer.load(quantizable_folder), 900, in_distribution=True)


@pytest.fixture(scope="module")
def plain(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return quantize(quantizable_folder, spec, tmp_path_factory.mktemp("out") / "plain", PLAIN, text)


@pytest.fixture(scope="module")
def refined(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return quantize(quantizable_folder, spec, tmp_path_factory.mktemp("out") / "refined", REFINED, text)


def _digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def _shards(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in _digests(folder).items() if name.endswith(".safetensors")}


def _weights(checkpoint: Path, spec: ModelSpec, *, residual: bool) -> dict[str, Tensor]:
    opened = Checkpoint.open(checkpoint)
    return {
        member.name: torch.from_numpy(np.array(value))
        for layer in spec.layers
        for group in layer.groups
        for member, value in zip(
            group.members, member_weights(opened.group(group.name), use_residual=residual), strict=True
        )
    }


def _log_probabilities(spec: ModelSpec, weight: Callable[[str], Any], tokens: Tensor, **options: Any) -> Tensor:
    ops = TorchOps(spec, weight, sequence_lengths=(len(tokens),), tokens=tokens, **options)
    logits: Tensor = graph_of(spec).forward(ops, spec)
    return logits.double().log_softmax(-1)


@torch.no_grad()
def _draft_kl(folder: Path, checkpoint: Path, spec: ModelSpec, texts: Sequence[Sequence[int]]) -> float:
    """KL(model ‖ base alone behind the model's K and V) per token, from the matrices that the checkpoint stands for."""
    base, total = _weights(checkpoint, spec, residual=False), 0.0
    with open_weights(folder) as source:
        for text in texts:
            tokens, exact = torch.tensor(text), {}

            def keeping(model: Any, layer: Any, q: Any, k: Any, v: Any, lengths: Any, exact: Any = exact) -> Tensor:
                exact[layer.index] = (k, v)
                return causal_attention(model, layer, q, k, v, lengths)

            def behind(model: Any, layer: Any, q: Any, k: Any, v: Any, lengths: Any, exact: Any = exact) -> Tensor:
                scale = attention_scale(model, layer)
                return mixed_attention(q, exact[layer.index], (k, v), 1, scale, layer.window).flatten(1)

            said = _log_probabilities(spec, source.tensor, tokens, attention=keeping)
            own = _log_probabilities(
                spec, source.tensor, tokens, attention=behind, linear=lambda g, m: base.get(m.name)
            )
            total += float((said.exp() * (said - own)).sum())
    return total / sum(map(len, texts))


def _worst_error(folder: Path, checkpoint: Path, spec: ModelSpec) -> float:
    """The largest relative error of a matrix that base and residual make together."""
    whole = _weights(checkpoint, spec, residual=True)
    with open_weights(folder) as source:
        sources = {name: torch.from_numpy(np.array(source.tensor(f"{name}.weight"))) for name in whole}
    return max(float((whole[name] - value).norm() / value.norm()) for name, value in sources.items())


def test_the_draft_gets_better_and_the_verifier_stays(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, plain: Path, refined: Path
) -> None:
    before = _draft_kl(quantizable_folder, plain, spec, text.texts)
    after = _draft_kl(quantizable_folder, refined, spec, text.texts)
    assert after < 0.96 * before
    errors = [_worst_error(quantizable_folder, folder, spec) for folder in (plain, refined)]
    assert errors[1] < 1.1 * errors[0]


def test_scales_change_and_codes_do_not(spec: ModelSpec, plain: Path, refined: Path) -> None:
    one, other = Checkpoint.open(plain), Checkpoint.open(refined)
    for group in (group for layer in spec.layers for group in layer.groups):
        a, b = one.group(group.name), other.group(group.name)
        assert np.array_equal(a.base_codes, b.base_codes)
        first, second = (packing.unpack_scales(np.array(g.base_scales)).astype(np.float32) for g in (a, b))
        ratio = second[first > 0] / first[first > 0]
        assert np.array_equal(first > 0, second > 0)
        assert 1e-3 < np.abs(ratio - 1).max() < 0.5, "a training this short moves a scale by some percents"


def test_the_checkpoint_says_so(plain: Path, refined: Path) -> None:
    def made(folder: Path) -> dict[str, Any]:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))["quantization_config"]["calibration"]

    assert "refine_passes" not in made(plain)
    assert made(refined) == made(plain) | {"refine_passes": 3}
    assert Checkpoint.open(refined).config.calibration["refine_passes"] == 3
    assert "3 passes" in (refined / "README.md").read_text(encoding="utf-8")
    assert "passes" not in (plain / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in plain.iterdir()} == {path.name for path in refined.iterdir()}


def test_without_a_gain_the_weights_are_the_plain_ones(
    quantizable_folder: Path,
    spec: ModelSpec,
    text: Calibration,
    plain: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two walks without a training between them are one: every shard has the bytes of the plain run."""
    monkeypatch.setattr(refine, "LEARNING_RATE", 0.0)
    still = quantize(quantizable_folder, spec, tmp_path / "still", REFINED, text)
    assert _shards(still) == _shards(plain)


def test_a_training_that_diverges_changes_nothing(
    quantizable_folder: Path,
    spec: ModelSpec,
    text: Calibration,
    plain: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refine, "LEARNING_RATE", 1e4)
    told: list[str] = []
    out = quantize(quantizable_folder, spec, tmp_path / "a", REFINED, text, lambda done, total, what: told.append(what))
    assert _shards(out) == _shards(plain)
    (last,) = {what for what in told if what.startswith("refining the draft, KL")}
    before, after = last.removeprefix("refining the draft, KL ").split(" → ")
    assert before == after


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", ["draft, layer 2/3", "refining the draft, pass 2/3", "layer 2/3", "head"])
def test_an_interrupted_run_ends_with_the_same_bytes(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, refined: Path, tmp_path: Path, stop_at: str
) -> None:
    out = tmp_path / "ckpt"

    def stop(done: int, total: int, what: str) -> None:
        if what.startswith(stop_at):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(quantizable_folder, spec, out, REFINED, text, stop)
    steps = {"draft, layer 2/3": 1, "refining the draft, pass 2/3": 3, "layer 2/3": 5, "head": 7}[stop_at]
    assert left_by(out, REFINED).layers == steps
    assert left_by(out, PLAIN) == Done()
    with pytest.raises(TwofoldError, match="another kind") as caught:
        quantize(quantizable_folder, spec, out, PLAIN, text)
    assert (caught.value.found, caught.value.needed) == ("refine passes 3", "refine passes none")
    seen: list[tuple[int, int, str]] = []
    quantize(quantizable_folder, spec, out, REFINED, text, lambda *what: seen.append(what))
    done = [one for one, _, _ in seen]
    assert done == sorted(done) and done[-1] == seen[-1][1]
    words = [what for *_, what in seen]
    assert "draft, layer 1/3" not in words, "a finished layer was done again"
    if stop_at == "refining the draft, pass 2/3":
        assert not any(what.startswith("refining the draft, pass 1/3") for what in words), (
            "a finished pass was done again"
        )
    assert _digests(out) == _digests(refined)
    assert not partial_folder(out).exists()


def test_a_damaged_note_of_the_training_counts_for_nothing(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, refined: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ckpt"

    def stop(done: int, total: int, what: str) -> None:
        if what.startswith("refining the draft, pass 3/3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(quantizable_folder, spec, out, REFINED, text, stop)
    note = partial_folder(out) / "bases" / "training.pt"
    note.write_bytes(note.read_bytes()[:1000])
    assert _digests(quantize(quantizable_folder, spec, out, REFINED, text)) == _digests(refined)


def test_values_of_the_text_may_lie_on_disk(
    quantizable_folder: Path,
    spec: ModelSpec,
    text: Calibration,
    refined: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twofold.engine.quantize.pipeline.STORE_RAM_BYTES", 100_000)
    out = quantize(quantizable_folder, spec, tmp_path / "a", REFINED, text)
    assert _digests(out) == _digests(refined)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gemma3"])
def test_other_architectures_refine_too(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """Biases, norms on heads, an untied head; windows, scaled queries and embeddings."""
    folder = shutil.copytree(request.getfixturevalue(f"tiny_{name}_folder"), tmp_path / "source")
    spec = read_folder_spec(folder, name="tiny")
    ids = _random_texts(folder, 20)
    text = Calibration("test", "0" * 64, ids)
    plain, refined = (quantize(folder, spec, tmp_path / f"{o.refine_passes}", o, text) for o in (PLAIN, REFINED))
    before, after = (_draft_kl(folder, checkpoint, spec, ids) for checkpoint in (plain, refined))
    assert after < before
    assert _worst_error(folder, refined, spec) < 1.1 * _worst_error(folder, plain, spec)


def _random_texts(folder: Path, n: int) -> tuple[tuple[int, ...], ...]:
    """Texts of 60 random tokens; the folder gets some tokenizer where it has none."""
    if not (folder / "tokenizer.json").exists():
        _byte_tokenizer(folder)
    generator, size = np.random.default_rng(0), read_folder_spec(folder, name="tiny").vocab_size
    return tuple(tuple(int(i) for i in generator.integers(0, size, 60)) for _ in range(n))


def _byte_tokenizer(folder: Path) -> None:
    import tokenizers

    inner = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate("abcdefgh")}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.save(str(folder / "tokenizer.json"))


def _refiner(source: Any, checkpoint: Path, spec: ModelSpec, texts: Sequence[Sequence[int]], folder: Path) -> Refiner:
    """A training that starts from a finished checkpoint's bases."""
    opened = Checkpoint.open(checkpoint)

    def rows(group: str, values: np.ndarray) -> Tensor:
        """[padded rows, n] → [n, rows]."""
        kept, start = [], 0
        for n in opened.group(group).member_rows:
            kept.append(values[start : start + n])
            start += packing.tiles(n) * packing.TILE_ROWS
        return torch.from_numpy(np.ascontiguousarray(np.concatenate(kept).T))

    def levels(group: str) -> Tensor:
        weights = opened.group(group)
        return rows(group, weights.levels[packing.unpack_base(np.array(weights.base_codes), weights.in_features)])

    scale = 1.0 if spec.embedding_scale is None else spec.embedding_scale
    embedding = torch.from_numpy(np.array(source.tensor("model.embed_tokens.weight"))) * scale
    draft = DraftModel(
        model=spec,
        weight=lambda name: torch.from_numpy(np.array(source.tensor(name))),
        embed=lambda text: embedding[list(text)],
        rotations=lambda group: make_rotations(0, group, is_head=False),
        levels=levels,
        device=torch.device("cpu"),
    )

    def scales(group: str) -> Tensor:
        return rows(group, packing.unpack_scales(np.array(opened.group(group).base_scales)))

    job = RefineJob(draft, scales, texts, 1, 0, folder / "training.pt")
    return Refiner(job, lambda n_rows: RowStore(folder, n_rows, 1 << 26), lambda share, what: None)


@pytest.mark.parametrize("name", ["quantizable", "tiny_qwen2", "tiny_gemma3"])
def test_gradients_are_those_of_the_loss(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """Of every group, along its gradient: what a small step changes in the loss is what the gradient says."""
    folder = shutil.copytree(request.getfixturevalue(f"{name}_folder"), tmp_path / "source")
    spec, texts = read_folder_spec(folder, name="tiny"), _random_texts(folder, 3)
    checkpoint = quantize(folder, spec, tmp_path / "ckpt", PLAIN, Calibration("test", "0" * 64, texts))
    with open_weights(folder) as source:
        refiner = _refiner(source, checkpoint, spec, texts, tmp_path)
        refiner.stream.run_model([*refiner.train, *refiner.held], lambda what: None)
        (batch,) = refiner.train
        assert refiner.gradients(batch)
        first = refiner.first
        refiner.held = [batch]
        assert refiner.judge(first) == pytest.approx(_draft_kl(folder, checkpoint, spec, texts[:2]), rel=1e-3)
        for group in (group for layer in spec.layers for group in layer.groups):
            gradient = refiner.logs[group.name].grad
            assert gradient is not None
            size = 0.05 / float(gradient.abs().max())
            up, down = (
                refiner.judge(first | {group.name: first[group.name] * (sign * size * gradient).exp()})
                for sign in (1, -1)
            )
            assert (up - down) / (2 * size) == pytest.approx(float(gradient.square().sum()), rel=0.03)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told_from_other_errors(
    quantizable_folder: Path, spec: ModelSpec, text: Calibration, plain: Path, tmp_path: Path
) -> None:
    (tmp_path / "training.new").symlink_to("/dev/full")
    with open_weights(quantizable_folder) as source:
        refiner = _refiner(source, plain, spec, text.texts, tmp_path)
        with pytest.raises(OSError, match="No space left") as caught:
            refiner._keep(1)
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / "training.pt").exists()


def test_long_texts_are_cut_and_some_held_back() -> None:
    assert pieces([range(5), range(3)], 2) == [range(2), range(2, 4), range(4, 5), range(2), range(2, 3)]
    texts: list[Sequence[int]] = [[n] for n in range(40)]
    train, held = dealt(texts)
    assert held == [[15], [31]] and len(train) == 38 and not any(text in train for text in held)
    assert dealt(texts[:3]) == (texts[:2], texts[2:3])
    assert dealt(texts[:1]) == (texts[:1], texts[:1])


def test_the_rate_rises_then_falls() -> None:
    rates = [learning_rate(step, 50) for step in range(50)]
    highest = rates.index(max(rates))
    assert 0 < highest < 10 and max(rates) <= refine.LEARNING_RATE
    assert rates[:highest] == sorted(rates[:highest]) and rates[highest:] == sorted(rates[highest:], reverse=True)
    assert rates[-1] < 0.01 * max(rates)


def test_steps_are_walks_with_the_training_between() -> None:
    assert list(Schedule(2).from_step(0)) == [("both", 0), ("both", 1), ("both", 2)]
    steps = [("base", 0), ("base", 1), ("refine", 2), ("residual", 0), ("residual", 1), ("both", 2)]
    assert list(Schedule(2, 4).from_step(0)) == steps
    assert list(Schedule(2, 4).from_step(4)) == steps[4:]
    assert Schedule(2, 4).n_steps == len(steps)


@pytest.mark.parametrize("passes", [-1, 65])
def test_impossible_passes_are_refused(passes: int) -> None:
    with pytest.raises(InvalidOption, match="refined"):
        QuantizeOptions(refine_passes=passes)
    assert dataclasses.replace(PLAIN, refine_passes=64).refine_passes == 64
