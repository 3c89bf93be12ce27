"""Small random checkpoints, written through the writer: residual widths, odd dimensions, biases, both head kinds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine.checkpoint import CheckpointConfig, SplitWeights
from twofold.engine.checkpoint.layout import expected_tensors
from twofold.engine.checkpoint.writer import dense_of_group, finish, write_dense, write_layer
from twofold.kernels.naive.packing import pack_base, pack_residual, pack_scales
from twofold.kernels.naive.rotation import block_width, needs_mix
from twofold.planner.plan import Plan
from twofold.profiles.model_spec import LinearGroup, ModelSpec
from twofold.profiles.readers.config import spec_from_config

TINY_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 72,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "vocab_size": 117,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
}

CheckpointMaker = Callable[..., Path]


def _orthogonal(rng: np.random.Generator, dimension: int) -> np.ndarray:
    m = dimension // block_width(dimension)
    return np.linalg.qr(rng.standard_normal((m, m)))[0].astype(np.float32)


def _stacked(parts: list[np.ndarray], pack: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return np.concatenate([pack(part) for part in parts])


def random_group(
    rng: np.random.Generator, group: LinearGroup, config: CheckpointConfig, mixes: dict[int, np.ndarray], is_head: bool
) -> SplitWeights:
    """Random codes; scales that keep activations of order one."""
    rows = [member.out_features for member in group.members]
    inputs, bits = group.in_features, config.bits_of(group.name)
    n_groups = -(-inputs // config.group_size)
    highest = 2 * ((1 << (bits - 1)) - 1)

    def scales(size: float) -> np.ndarray:
        drawn = [(rng.uniform(0.5, 1.5, (n, n_groups)) * size).astype(np.float16) for n in rows]
        return _stacked(drawn, pack_scales)

    base = [rng.integers(0, 4, (n, inputs)).astype(np.uint8) for n in rows]
    residual = [rng.integers(0, highest + 1, (n, inputs)).astype(np.uint8) for n in rows]
    signs = [rng.choice(np.array([-1, 1], np.int8), n) for n in (inputs, sum(rows))]
    bias = rng.standard_normal(sum(rows)).astype(np.float32) if any(m.bias for m in group.members) else None
    return SplitWeights(
        in_features=inputs,
        member_rows=tuple(rows),
        base_codes=_stacked(base, pack_base),
        base_scales=scales(0.01 / inputs**0.5),
        levels=np.array(config.base_levels, np.int8),
        residual_codes=_stacked(residual, lambda codes: pack_residual(codes, bits)),
        residual_scales=scales(0.3 / highest / inputs**0.5),
        residual_bits=bits,
        group_size=config.group_size,
        base_planes=config.base_planes,
        residual_planes=config.residual_planes,
        exchange_dtype=config.exchange_dtype,
        input_signs=signs[0],
        output_signs=None if is_head else signs[1],
        mix_in=mixes.get(inputs),
        mix_out=() if is_head else tuple(mixes.get(n) for n in rows),
        bias=bias,
    )


def _mixes(rng: np.random.Generator, spec: ModelSpec) -> dict[int, np.ndarray]:
    widths = {group.in_features for group in spec.groups}
    widths |= {member.out_features for layer in spec.layers for group in layer.groups for member in group.members}
    return {width: _orthogonal(rng, width) for width in sorted(widths) if needs_mix(width)}


def write_random_checkpoint(folder: Path, model: dict[str, Any], config: CheckpointConfig, seed: int = 0) -> None:
    """A whole checkpoint of random numbers for a Hugging Face configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    spec = spec_from_config(model, name=folder.name, facts_source="test")
    mixes, total = _mixes(rng, spec), spec.n_layers + 1
    dense: dict[str, np.ndarray] = {}
    for layer in [*spec.layers, None]:
        groups = {
            group.name: random_group(rng, group, config, mixes, is_head=layer is None)
            for group in (layer.groups if layer else (spec.head,))
        }
        write_layer(folder, layer.index if layer else spec.n_layers, total, groups)
        for name, weights in groups.items():
            dense |= dense_of_group(name, weights)
    for name, layout in expected_tensors(spec, config).items():
        if name.endswith("norm.weight"):
            dense[name] = rng.uniform(0.5, 1.5, layout.shape).astype(np.float32)
    dense["model.embed_tokens.weight"] = rng.standard_normal((spec.vocab_size, spec.hidden_size)).astype(np.float16)
    write_dense(folder, dense)
    finish(folder, model, config)


@pytest.fixture
def tiny_config() -> dict[str, Any]:
    """A Hugging Face configuration: 2 layers, hidden 72 = 9 · 2^3, 6 heads of 12 over 2, vocabulary 117."""
    return dict(TINY_CONFIG)


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    """A complete plan for the tiny checkpoints; keyword arguments replace fields."""

    def make(**changes: Any) -> Plan:
        fields: dict[str, Any] = {
            "model": "tiny",
            "device": "cpu",
            "context_tokens": 128,
            "residual_bits": 6,
            "k_type": "f16",
            "v_type": "f16",
            "resident_linears": (),
            "draft_nodes": 0,
            "draft_depth": 0,
            "prefill_chunk": 32,
            "threads": 1,
            "cpu_isa": "auto",
            "expected_ram_mib": 1.0,
            "expected_vram_mib": 0.0,
        }
        return Plan(**(fields | changes))

    return make


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> CheckpointMaker:
    """`make_checkpoint(residual_bits=6, seed=0, name="tiny", quantization={}, **model)` → folder."""

    def make(
        *,
        residual_bits: int = 6,
        seed: int = 0,
        name: str = "tiny",
        quantization: dict[str, Any] | None = None,
        **model: Any,
    ) -> Path:
        config = CheckpointConfig(residual_bits=residual_bits, **(quantization or {}))
        folder = tmp_path / name
        write_random_checkpoint(folder, TINY_CONFIG | model, config, seed)
        return folder

    return make


_TRUNCATE_SOURCE = """
import json, os, shutil, sys
from pathlib import Path
from twofold.engine.weights import open_weights
from twofold.profiles.errors import CorruptFile

source, scratch = Path(sys.argv[1]), Path(sys.argv[2])
results = {}
for left in (0.0, 0.4, 0.999):
    place = scratch / f"{left}"
    place = shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place.with_suffix(source.suffix))
    file = next(Path(place).glob("*.safetensors")) if source.is_dir() else Path(place)
    with open_weights(place) as weights:
        names = sorted(weights.names())
        first = {name: weights.tensor(name) for name in names}
        weights.close()
    with open_weights(place) as weights:
        weights.tensor(names[0])  # mapped by now
        os.truncate(file, int(file.stat().st_size * left))
        refused = wrong = 0
        for name in names:
            for read in (weights.tensor, lambda name: weights.rows(name, slice(0, 1))):
                try:
                    read(name)
                    wrong += 1
                except CorruptFile as error:
                    refused += "changed while it was in use" in str(error) and error.hint is not None
    results[str(left)] = [refused, wrong, 2 * len(names)]
print(json.dumps(results))
"""


@pytest.fixture
def reads_after_truncation(tmp_path: Path) -> Callable[[Path], dict[str, list[int]]]:
    """`reads_after_truncation(source)`: in a process of its own, open weights, cut their file, read every tensor.

    What was left of the file → [reads that were refused, reads that gave something, reads].
    """

    def run(source: Path) -> dict[str, list[int]]:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        command = [sys.executable, "-c", _TRUNCATE_SOURCE, str(source), str(scratch)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
        found: dict[str, list[int]] = json.loads(done.stdout)
        return found

    return run
