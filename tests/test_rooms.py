"""The rooms' walls: who may import whom, and what stays out of the fast commands."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FORBIDDEN = {
    "probes": {"twofold.planner", "twofold.engine", "twofold.cli"},
    "profiles": {"torch", "twofold.planner", "twofold.engine", "twofold.cli"},
    "planner": {"torch", "twofold.engine", "twofold.cli"},
    "kernels": {"twofold.planner", "twofold.engine", "twofold.cli", "twofold.probes", "twofold.profiles"},
    "engine": {"twofold.probes", "twofold.cli"},
}
MAX_LINES = 600


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return names


def _sources() -> list[Path]:
    rooms = ("cli", "planner", "engine", "probes", "profiles", "kernels", "benchmarks", "tests")
    return [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_a_room_does_not_import_what_it_must_not(room: str) -> None:
    broken = []
    for path in sorted((ROOT / room).rglob("*.py")):
        for name in _imports(path):
            if any(name == wall or name.startswith(wall + ".") for wall in FORBIDDEN[room]):
                broken.append(f"{path.relative_to(ROOT)} imports {name}")
    assert broken == []


def test_no_file_is_longer_than_the_limit() -> None:
    sources = [*_sources(), *(ROOT / "kernels").rglob("*.cpp"), *(ROOT / "kernels").rglob("*.hpp")]
    long = {str(path.relative_to(ROOT)): n for path in sources if (n := len(path.read_text().splitlines())) > MAX_LINES}
    assert long == {}


def test_kernels_stays_a_namespace_package() -> None:
    # A bare `kernels` with an __init__ would shadow another project's package of that name.
    assert not (ROOT / "kernels" / "__init__.py").exists()


def _modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_tree_loads_without_the_heavy_packages() -> None:
    loaded = _modules_after("from twofold.cli.app import build_app; build_app()")
    assert not loaded & {"torch", "numpy", "optuna", "gguf", "transformers", "pydantic_core", "huggingface_hub"}


def test_opening_and_running_a_checkpoint_loads_no_torch() -> None:
    # Whatever a second start imports: finding the checkpoint, planning, the engine, the session.
    loaded = _modules_after(
        "from twofold.cli import launch, quantize_job\n"
        "from twofold.engine.quantize import options, workspace\n"
        "from twofold.engine import checkpoint, engine, generate, sampling, session, text\n"
        "from twofold.planner import propose\n"
        "from twofold import probes; probes.probe(bandwidth=False)\n"
    )
    assert not loaded & {"torch", "optuna", "transformers", "huggingface_hub"}
