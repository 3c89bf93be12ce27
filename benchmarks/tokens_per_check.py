"""How many tokens a verify pass gives, per tree, over whole greedy answers to the held-out prompts.

Run: python benchmarks/tokens_per_check.py [MODEL] [--max-tokens 512] [--shapes 4x4,16x8] [--prompts 16] [--lookup].
With --lookup a step takes as many tokens as the tree has nodes from the text itself where they are as promising.
Prints a JSON document; exits 1 when a bar is missed. A count, so other work on the machine does not matter. An answer
ends where the model ends it, or after --max-tokens. The prompts are those of the shipped texts that calibration never
sees; a tree whose answers differ from the first tree's is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.cli.launch import Launched
    from twofold.engine.engine import Engine

SCHEMA_VERSION = 2
BARS = {(4, 4): 3.1, (16, 8): 4.3}
"""Tokens per check by draft nodes and depth, for SmolLM2."""
CONTEXT_TOKENS = 2048
Shape = tuple[int, int]


def shapes(text: str) -> list[Shape]:
    """`4x4,16x8`: nodes and depth of each tree."""
    return [(int(nodes), int(depth)) for nodes, depth in (part.split("x") for part in text.split(","))]


def prompts_of(launched: Launched, most: int) -> list[list[int]]:
    """The held-out prompts as tokens, each once."""
    from twofold.engine.quantize.calibration import held_out

    distinct = dict.fromkeys(tuple(ids[:start]) for ids, start in held_out(launched.tokenizer))
    return [list(one) for one in distinct][:most]


Answered = tuple[list[int], int]
"""The tokens of an answer, the one that ended it included, and the verify passes that it took."""


def answers(engine: Engine, prompts: Sequence[list[int]], ends: frozenset[int], max_tokens: int) -> list[Answered]:
    """Each prompt answered."""
    from twofold.engine.generate import generate

    found = []
    for i, prompt in enumerate(prompts, 1):
        engine.reset()
        generation = generate(engine, prompt, stop_tokens=ends, max_tokens=max_tokens)
        tokens: list[int] = []
        for result in generation:
            tokens += result.tokens if result.stop_token is None else [*result.tokens, result.stop_token]
        found.append((tokens, generation.stats.steps))
        print(f"{i} of {len(prompts)}: {len(tokens)} tokens in {generation.stats.steps} checks", file=sys.stderr)
    return found


def count(
    launched: Launched, shape: Shape, prompts: Sequence[list[int]], options: argparse.Namespace
) -> list[Answered]:
    """`answers` with a tree of this shape."""
    from twofold.engine.engine import Engine

    nodes, depth = shape
    plan = launched.plan.with_drafts(nodes, depth)
    if options.lookup:
        plan = plan.model_copy(update={"lookup_nodes": nodes, "lookup_least": 0.0})
    checked = type(plan).model_validate(plan.model_dump())
    with_tree = Engine.of(launched.engine.checkpoint, checked, kernels=launched.engine.backend.name)
    print(f"a tree of {nodes} nodes, {depth} deep", file=sys.stderr)
    return answers(with_tree, prompts, frozenset(launched.tokenizer.eos_ids), options.max_tokens)


def row(shape: Shape, found: Sequence[Answered]) -> dict[str, Any]:
    """What one shape gave. Tokens per check count every answer's tokens alike."""
    tokens, checks = sum(len(ids) for ids, _ in found), sum(steps for _, steps in found)
    each = sorted(len(ids) / steps for ids, steps in found)
    return {
        "draft_nodes": shape[0],
        "draft_depth": shape[1],
        "answers": len(found),
        "tokens": tokens,
        "checks": checks,
        "tokens_per_check": round(tokens / checks, 3),
        "least_and_most_of_an_answer": [round(each[0], 2), round(each[-1], 2)],
        "bar": BARS.get(shape),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The whole run.

    Raises:
        SystemExit: two trees gave different texts.
    """
    from twofold.cli.bench import document_head
    from twofold.cli.launch import launch
    from twofold.cli.launch_options import LaunchOptions

    launched = launch(LaunchOptions(model=options.model, ctx=CONTEXT_TOKENS, kv="f16", assume_yes=True))
    assert launched is not None  # not a dry run
    prompts = prompts_of(launched, options.prompts)
    rows: list[dict[str, Any]] = []
    first: list[list[int]] | None = None
    for shape in shapes(options.shapes):
        found = count(launched, shape, prompts, options)
        texts = [ids for ids, _ in found]
        if first is not None and texts != first:
            raise SystemExit(f"a tree of {shape[0]} nodes, {shape[1]} deep, answers otherwise: twofold doctor --parity")
        first = first or texts
        rows.append(row(shape, found))
    about = {name: value for name, value in document_head(launched).items() if name in ("machine", "commit")}
    return {
        "schema_version": SCHEMA_VERSION,
        **about,
        "max_tokens": options.max_tokens,
        "lookup": options.lookup,
        "shapes": rows,
    }


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--shapes", default="4x4,16x8", help="draft nodes x depth, separated by commas")
    parser.add_argument("--prompts", type=int, default=16, help="how many of the held-out prompts")
    parser.add_argument("--lookup", action="store_true", help="also look drafts up in the text itself")
    found = measure(parser.parse_args())
    print(json.dumps(found, indent=2))
    missed = [one for one in found["shapes"] if one["bar"] is not None and one["tokens_per_check"] < one["bar"]]
    for one in missed:
        print(f"missed: {one['draft_nodes']} nodes: {one['tokens_per_check']}, needed {one['bar']}", file=sys.stderr)
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
