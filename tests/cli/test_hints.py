"""Every command and option that a message names exists: hints in the code, help texts, and the README."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import twofold.cli
from twofold.cli.app import build_app

ROOT = Path(twofold.cli.__file__).resolve().parents[1]
ROOMS = ("cli", "engine", "kernels", "planner", "probes", "profiles")
_FOREIGN = re.compile(
    r"\b(X -m pip|pip|hf|docker|iconv|llama-gguf-split|nvidia-smi|llama-server|chmod|mkdir|taskset)\b.*"
)
_COMMAND = re.compile(r"\btwofold ((?:-{0,2}[a-z][a-z_-]*)(?: [a-z][a-z-]*)?)")
_OPTION = re.compile(r"(?<![\w}-])(--?[a-z][a-z-]*)")


def _tree() -> dict[tuple[str, ...], set[str]]:
    """Command path → its options."""
    found: dict[tuple[str, ...], set[str]] = {}

    def visit(command: Any, path: tuple[str, ...]) -> None:
        options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        found[path] = {name for name in options if name.startswith("-")} | {"-h", "--help"}
        for name, child in getattr(command, "commands", {}).items():
            visit(child, (*path, name))

    visit(typer.main.get_command(build_app()), ())
    return found


TREE = _tree()
OPTIONS = set().union(*TREE.values())


def _text(node: ast.AST) -> Iterator[str]:
    """The texts that an expression can give; what is filled in reads X."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _text(child)


def _said() -> list[tuple[str, bool, str]]:
    """(place, whether it is a hint, text) of every text in the code that names a command, and of every hint."""
    found = []
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        place = str(path.relative_to(ROOT))
        hints = {text for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "hint"
                 for text in _text(node.value)}  # fmt: skip
        found += [(place, True, text) for text in sorted(hints)]
        texts = {text for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)
                 for text in _text(node)}  # fmt: skip
        found += [(place, False, text) for text in sorted(texts - hints) if "twofold " in text]
    return found


SAID = _said()


def _wrong(text: str, *, is_hint: bool) -> list[str]:
    """What `text` names that does not exist."""
    own = _FOREIGN.sub("", text)
    wrong = []
    named: list[set[str]] = []
    for match in _COMMAND.finditer(own):
        words = match[1].split()
        if words[0].startswith("-"):
            named.append(TREE[()])
            continue
        if (words[0],) not in TREE:
            if is_hint or re.match(r"[`']", own[max(0, match.start() - 1) :]):
                wrong.append(f"twofold {words[0]}")
            continue
        group = any(len(path) == 2 and path[0] == words[0] for path in TREE)
        path = tuple(words[: 2 if group else 1])
        if group and path not in TREE:
            wrong.append(f"twofold {' '.join(path)}")
            continue
        named.append(TREE[path])
    known = set().union(*named) if named else OPTIONS
    if is_hint or named:
        wrong += [option for option in _OPTION.findall(own) if option not in known and option not in OPTIONS]
    if len(named) == 1:
        after = own[own.index("twofold ") :]
        wrong += [option for option in _OPTION.findall(after.split("`")[0].split(",")[0]) if option not in known]
    return wrong


def test_hints_are_found() -> None:
    assert sum(is_hint for _, is_hint, _ in SAID) > 80
    assert sum("twofold " in text for _, _, text in SAID) > 40


def test_hints_name_what_exists() -> None:
    wrong = {(place, text): _wrong(text, is_hint=is_hint) for place, is_hint, text in SAID}
    assert {key: found for key, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    "text", ["twofold fitt X", "twofold profile rm X", "twofold fit X --nope", "--contxt 8K", "twofold cards --yes"]
)
def test_a_hint_that_names_nothing_is_seen(text: str) -> None:
    assert _wrong(text, is_hint=True)


@pytest.mark.parametrize("text", ["twofold fit X --ctx 8K", "hf auth login --token", "pass --yes", "twofold --version"])
def test_a_good_hint_passes(text: str) -> None:
    assert not _wrong(text, is_hint=True)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs"])
def test_pages_name_what_exists(page: str) -> None:
    if not (ROOT / page).exists():
        pytest.skip("not in an installed copy")
    pages = (ROOT / page).glob("*.md") if (ROOT / page).is_dir() else [ROOT / page]
    for path in pages:
        code = re.findall(r"`(twofold [^`\n]*)`|^\s*(?:\$ )?(twofold [^\n#]*)", path.read_text("utf-8"), re.MULTILINE)
        for first, second in code:
            line = (first or second).split("&&")[0]
            command = line.split()[1] if len(line.split()) > 1 else ""
            if (command,) in TREE:
                assert _wrong(line, is_hint=True) == [], f"{path.name}: {line}"
