"""How often the draft's first guess is the verifier's token, and what that depends on.

Run: python benchmarks/draft_recall.py [MODEL] [--max-tokens 64] [--prompts 16]. Prints a JSON document; a count, so
other work on the machine does not matter. Along the verifier's own greedy answers to the shipped bench prompts (prose
and code) and to the held-out ones: a chain of base rows behind the verifier's exact K and V, fed with the answer, and
the base with its own K and V. By depth, by how sure the verifier is of its token, and by the place in the answer.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from twofold.cli.launch import Launched
    from twofold.engine.engine import Engine

SCHEMA_VERSION = 1
DEPTH = 4
SURE = (0.0, 0.5, 0.9, 0.99, 1.01)
PLACES = (0, 8, 32, 64, 128, 256, 1 << 30)
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer: hits [DEPTH, tokens] at exact K and V (False where the chain would begin before the answer), hits
    with own K and V [tokens], and the verifier's probability of its token [tokens].
    """

    exact: Flags
    own: Flags
    sure: NDArray[np.float64]


def look_at(engine: Engine, prompt: Sequence[int], stop: Sequence[int], max_tokens: int) -> Seen:
    """Answer `prompt`, then draft along the answer."""
    from twofold.engine.generate import generate

    engine.reset()
    answer = [t for r in generate(engine, prompt, stop_tokens=stop, max_tokens=max_tokens) for t in r.tokens]
    text, first = [*prompt, *answer], len(prompt) - 1
    rows, right = range(first, len(text) - 1), np.array(answer)
    own = engine.forward_logits(text, use_residual=False)[first:-1].argmax(axis=1) == right
    verified = engine.forward_logits(text)[first:-1].astype(np.float64)
    assert (verified.argmax(axis=1) == right).all(), "the answer is not the verifier's"
    sure = 1 / np.exp(verified - verified.max(axis=1, keepdims=True)).sum(axis=1)
    exact = np.zeros((DEPTH, len(answer)), bool)
    for place, row in enumerate(rows):
        chain = text[row : min(row + DEPTH, len(text) - 1)]
        engine.prefill(text[: row + 1])
        guesses = engine.dry_pass(chain, use_residual=False).argmax(axis=1)
        for depth, guess in enumerate(guesses.tolist()):
            exact[depth, place + depth] = guess == text[row + depth + 1]
    return Seen(exact, own, sure)


def chain_checks(exact: Flags) -> int:
    """Verify passes of a chain of `DEPTH` over one answer."""
    at = checks = 0
    while at < exact.shape[1]:
        taken = 0
        while taken < DEPTH and at + taken < exact.shape[1] and exact[taken, at + taken]:
            taken += 1
        at, checks = at + taken + 1, checks + 1
    return checks


def summary(seen: Sequence[Seen]) -> dict[str, Any]:
    """Shares, with how many tokens each rests on."""
    depths = [np.concatenate([one.exact[depth, depth:] for one in seen]) for depth in range(DEPTH)]
    sure = np.concatenate([one.sure for one in seen])
    places = np.concatenate([np.arange(len(one.sure)) for one in seen])

    def parts(values: NDArray[Any], bounds: Sequence[float]) -> list[dict[str, Any]]:
        found = []
        for low, high in itertools.pairwise(bounds):
            chosen = (values >= low) & (values < high)
            if chosen.any():
                row = {"from": low, "below": high, "n": int(chosen.sum()), "recall": share(depths[0][chosen])}
                found.append(row | {"mean_probability": round(float(sure[chosen].mean()), 3)})
        return found

    return {
        "answers": len(seen),
        "tokens": len(sure),
        "own_kv": share(np.concatenate([one.own for one in seen])),
        "exact_kv_by_depth": [share(hits) for hits in depths],
        "chain_of_4_tokens_per_check": round(len(sure) / sum(chain_checks(one.exact) for one in seen), 3),
        "by_probability": parts(sure, SURE),
        "by_place": parts(places, PLACES),
    }


def share(hits: Flags) -> float:
    return round(float(hits.mean()), 3)


def prompts_of(launched: Launched) -> dict[str, list[list[int]]]:
    """Prompts by kind, as tokens."""
    from twofold.engine.bench.prompts import KINDS, bench_texts
    from twofold.engine.quantize.calibration import held_out

    texts = bench_texts(launched.tokenizer, launched.template, 16)
    kinds = {kind: [list(chat) for chat in texts[kind].chats] for kind in KINDS}
    held = dict.fromkeys(tuple(ids[:start]) for ids, start in held_out(launched.tokenizer))
    return {**kinds, "held-out": [list(one) for one in held]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=16, help="at most so many of each kind")
    options = parser.parse_args()
    from twofold.cli.bench import document_head
    from twofold.cli.launch import launch
    from twofold.cli.launch_options import LaunchOptions
    from twofold.engine.engine import Engine

    launched = launch(LaunchOptions(model=options.model, ctx=2048, kv="f16", assume_yes=True))
    assert launched is not None  # not a dry run
    plan = launched.plan.with_drafts(DEPTH, DEPTH)
    engine, stop = Engine.of(launched.engine.checkpoint, plan), launched.tokenizer.eos_ids
    kinds = {
        kind: summary([look_at(engine, prompt, stop, options.max_tokens) for prompt in prompts[: options.prompts]])
        for kind, prompts in prompts_of(launched).items()
    }
    about = {name: value for name, value in document_head(launched).items() if name in ("machine", "commit")}
    print(json.dumps({"schema_version": SCHEMA_VERSION, **about, "max_tokens": options.max_tokens, "kinds": kinds}))


if __name__ == "__main__":
    main()
