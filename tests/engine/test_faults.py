"""What can go wrong under a running engine: the right text or a clear error, never a crash or a silent wrong token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from twofold.engine import rereads
from twofold.engine.checkpoint.layout import EMBEDDING
from twofold.engine.engine import Engine
from twofold.kernels import cpu
from twofold.planner.plan import Plan
from twofold.profiles.errors import CorruptFile, EngineFailed
from twofold.profiles.readers.safetensors_header import read_safetensors_header

native = pytest.mark.skipif(cpu.missing_reason() is not None, reason="no native module")
PROMPT = [5, 9, 17, 33, 2, 60]


def steps(engine: Engine, count: int) -> list[int]:
    for _ in range(count):
        engine.step()
    return engine.tokens


def child(code: str, *arguments: str) -> dict[str, object]:
    """Run a program of its own: what is tested could end this one."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
    found: dict[str, object] = json.loads(done.stdout)
    return found


_TRUNCATE = """
import json, os, shutil, sys
from pathlib import Path
from twofold.engine.engine import Engine
from twofold.planner.plan import Plan
from twofold.profiles.errors import CorruptFile

source, plan, kernels = Path(sys.argv[1]), Plan.from_json(sys.argv[2]), sys.argv[3]
results = {}
for name in ("base-00001-of-00003", "residual-00002-of-00003", "residual-00003-of-00003", "dense"):
    for left in (0.0, 0.5, 0.999):
        folder = shutil.copytree(source, source.with_name(f"{name}-{left}"))
        engine = Engine.load(folder, plan, kernels=kernels)
        engine.prefill([5, 9, 17])
        engine.step()
        before = list(engine.tokens)
        file = folder / f"{name}.safetensors"
        os.truncate(file, int(file.stat().st_size * left))
        try:
            engine.step()
            results[f"{name} {left}"] = "a token"
        except CorruptFile as error:
            results[f"{name} {left}"] = [str(error), error.found, error.needed, engine.tokens == before]
print(json.dumps(results))
"""


@native
def test_a_checkpoint_that_is_truncated_under_the_map(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> None:
    """Pages that are gone, and the end of a page that is still there."""
    folder = make_checkpoint(hidden_size=192, intermediate_size=384)
    plan = make_plan(draft_nodes=3, draft_depth=3, threads=2).to_json()
    results = child(_TRUNCATE, str(folder), plan, "cpu")
    assert len(results) == 12
    for what, result in results.items():
        assert isinstance(result, list), f"{what}: {result}"
        message, found, needed, kept = result
        assert "changed while it was in use" in message
        assert int(found.split()[0]) < int(needed.split()[0])
        assert kept, what


def test_without_the_native_module_the_size_is_watched(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(), kernels="naive")
    engine.prefill(PROMPT)
    engine.step()
    shard = engine._checkpoint.path / "residual-00001-of-00003.safetensors"
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(CorruptFile, match="changed while it was in use"):
        engine.step()


@pytest.mark.parametrize("kernels", ["naive", pytest.param("cpu", marks=native)])
@pytest.mark.parametrize("left", [0.5, 1.0])
def test_a_file_that_is_written_over_between_answers(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan], left: float, kernels: str
) -> None:
    """Of the same size again, so that no page is missing: cut and written at its end, or written in its middle."""
    engine = Engine.load(make_checkpoint(), make_plan(), kernels=kernels)
    engine.prefill(PROMPT)
    engine.step()
    shard = engine._checkpoint.path / "base-00002-of-00003.safetensors"
    size, before = shard.stat().st_size, shard.stat().st_mtime_ns
    os.truncate(shard, int(size * left))
    with shard.open("r+b") as file:
        file.seek(size - 64)
        file.write(bytes([7] * 64))
    os.utime(shard, ns=(before, before + 1))
    assert shard.stat().st_size == size
    with pytest.raises(CorruptFile, match="changed while it was in use: it was written over"):
        engine.prefill([*PROMPT, 3])


def plant(folder: Path, tensor: str, value: float, position: int = 0) -> None:
    """Put one value into a float tensor of a checkpoint."""
    for file in folder.glob("*.safetensors"):
        entry = read_safetensors_header(file).get(tensor)
        if entry is not None:
            dtype = np.dtype({"F16": np.float16, "F32": np.float32}[entry.dtype])
            values = np.memmap(file, dtype, "r+", entry.start, (entry.n_values,))
            values[position] = value
            values.flush()
            return
    raise AssertionError(f"no tensor {tensor}")


@native
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "tensor",
    [
        "model.layers.0.self_attn.qkv.base_scales",
        "model.layers.1.self_attn.o.residual_scales",
        "model.layers.0.mlp.gate_up.residual_scales",
        "model.layers.1.mlp.down.base_scales",
        "lm_head.base_scales",
        "lm_head.residual_scales",
        "model.norm.weight",
        EMBEDDING,
    ],
)
def test_a_planted_bad_value_is_an_error_and_no_token(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan], tensor: str, value: float
) -> None:
    folder = make_checkpoint()
    plant(folder, tensor, value, PROMPT[-1] * 72 if tensor == EMBEDDING else 0)
    for draft_nodes in (0, 3):
        engine = Engine.load(folder, make_plan(draft_nodes=draft_nodes, draft_depth=draft_nodes), kernels="cpu")
        engine.prefill(PROMPT)
        with pytest.raises(EngineFailed, match="not finite") as caught:
            engine.step()
        assert caught.value.hint is not None
        assert engine.tokens == PROMPT
        with pytest.raises(EngineFailed, match="not finite"):
            engine.forward_logits(PROMPT)


@native
def test_more_threads_than_cores_give_the_same_text(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> None:
    folder, texts = make_checkpoint(), []
    before = cpu.native().threads()
    try:
        for threads in (1, (os.cpu_count() or 1) + 5):
            engine = Engine.load(folder, make_plan(threads=threads, draft_nodes=3, draft_depth=3), kernels="cpu")
            engine.prefill(PROMPT)
            texts.append(list(steps(engine, 10)))
    finally:
        cpu.native().set_threads(before)
    assert texts[0] == texts[1]


_MANY_STEPS = """
import json, sys
from pathlib import Path
from twofold.engine.engine import Engine
from twofold.engine.sampling import SamplingParams
from twofold.planner.plan import Plan

def kib(name):
    # counted page by page: the counters behind VmRSS may each lag by hundreds of KiB
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

engine = Engine.load(sys.argv[1], Plan.from_json(sys.argv[2]), kernels="cpu")
engine.prefill([5, 9, 17])
sizes, done = [], 0
for done in range(1, 10001):
    if engine.room < 8:
        engine.prefill(engine.tokens[:3])
    engine.step(SamplingParams(seed=done))
    if done in (1000, 10000):
        sizes.append(kib("Anonymous"))
print(json.dumps({"steps": done, "growth_kib": sizes[1] - sizes[0], "rereads": engine.reread_steps,
                  "resident": kib("Rss") << 10, "held": engine.memory_report(), "torch": "torch" in sys.modules}))
"""


@native
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not sum up its pages")
def test_ten_thousand_steps_do_not_grow(make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]) -> None:
    """A leak of 32 bytes a step would show."""
    folder = make_checkpoint(hidden_size=32, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1)
    found = child(_MANY_STEPS, str(folder), make_plan(draft_nodes=2, draft_depth=2).to_json())
    assert found["steps"] == 10000
    assert isinstance(found["growth_kib"], int) and found["growth_kib"] < 256
    assert found["rereads"] == 0
    held = found["held"]
    assert isinstance(held, dict) and isinstance(found["resident"], int)
    assert found["torch"] is False
    assert found["resident"] <= held["weights_mapped"] + held["kv_cache"] + (200 << 20)


@native
def test_weights_that_were_dropped_from_memory_are_noticed(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of the maps and of the cache are dropped between two steps, as a kernel short of memory does."""
    import mmap

    folder = make_checkpoint(hidden_size=192, intermediate_size=384)
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    monkeypatch.setattr(rereads, "USUAL_FAULTS", 2)
    engine = Engine.load(folder, make_plan(), kernels="cpu")
    engine.prefill(PROMPT)
    steps(engine, 6)
    assert engine.reread_steps == 0
    files = engine._checkpoint._files.values()
    for mapped in files:
        mapped._map.madvise(mmap.MADV_DONTNEED)
        with mapped.path.open("rb") as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = rereads._major_faults()
    sum(int(np.frombuffer(mapped._map, np.uint8)[::4096].sum()) for mapped in list(files)[:1])
    if rereads._major_faults() == begin:
        pytest.skip("this file system keeps its files in memory")
    engine.step()
    assert engine.reread_steps == 1
    steps(engine, 3)
    assert engine.reread_steps == 1
