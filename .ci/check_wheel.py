"""The wheel holds the package, its data and the native module, and nothing else."""

from __future__ import annotations

import sys
import zipfile

NEEDED = (
    "twofold/__init__.py",
    "twofold/py.typed",
    "twofold/cli/app.py",
    "twofold/cli/html/report.css",
    "twofold/cli/html/report.html.j2",
    "twofold/engine/data/smollm2_chat.jsonl",
    "twofold/profiles/data/cards.json",
    "twofold/profiles/data/model_configs.json",
)


def main(path: str) -> int:
    names = zipfile.ZipFile(path).namelist()
    missing = [name for name in NEEDED if name not in names]
    native = [name for name in names if name.startswith("twofold/kernels/cpu/_cpu.") and name.endswith((".so", ".pyd"))]
    foreign = [name for name in names if not name.startswith(("twofold/", "twofold-"))]
    sources = [name for name in names if name.endswith((".cpp", ".hpp", "CMakeLists.txt"))]
    for what, found in (("missing", missing), ("outside the package", foreign), ("sources", sources)):
        if found:
            print(f"{path}: {what}: {found}", file=sys.stderr)
    if len(native) != 1:
        print(f"{path}: native modules: {native}", file=sys.stderr)
    return 1 if missing or foreign or sources or len(native) != 1 else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
