"""`Engine`: a checkpoint under a plan. One step is draft → verify → accept → commit.

The text is `tokens`; the cache holds a prefix of it, never its last token, whose row is computed by the next step. That
prefix is all that an operation relies on, so an interruption anywhere leaves an engine that simply continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.engine.accept import Accepted, accept
from twofold.engine.backend import Backend, Choice, choose_backend
from twofold.engine.checkpoint import Checkpoint
from twofold.engine.draft import KEPT_RANKS, Draft, DraftTree
from twofold.engine.draft_head import DraftHead
from twofold.engine.lookup import Found, TextLookup
from twofold.engine.native_replay import NativePlayer
from twofold.engine.parts import Parts, make_parts
from twofold.engine.plan_check import check_plan
from twofold.engine.player import player_of
from twofold.engine.rank_counts import RankCounts
from twofold.engine.replay import Player
from twofold.engine.rereads import RereadWatch
from twofold.engine.sampling import SamplingParams, choose
from twofold.engine.tape import Tape, TapeMaker, WholeTapes
from twofold.planner.acceptance import DEFAULT_STATISTICS, RankStatistics, measured_ranks, tree_shape
from twofold.planner.lookup import LookupChoice
from twofold.planner.plan import Plan
from twofold.profiles.errors import ContextFull, EngineFailed

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Progress = Callable[[int, int], None]
"""(tokens done, tokens in all)."""
OnLogits = Callable[[int, F32], None]
"""(absolute position, the verifier's logits [vocab] for it); the array is only valid during the call."""
Finish = Literal["stop", "length", "context"]
"""How a generation ended: a stop token, its limit, or the end of the context."""
GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave. `drafted` and `accepted` count nodes; `finish` is set on the last one of a generation."""

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    seconds: float
    finish: Finish | None = None
    stop_token: int | None = None


class Engine:
    """See the module; made by `Engine.load`."""

    def __init__(
        self, checkpoint: Checkpoint, plan: Plan, backend: Backend, statistics: RankStatistics | None = None
    ) -> None:
        check_plan(plan, checkpoint.spec, checkpoint.config)
        checkpoint = checkpoint.under(plan.activations)
        self.spec, self.config, self.plan, self.backend = checkpoint.spec, checkpoint.config, plan, backend
        known = statistics or measured_ranks(self.config.measured) or DEFAULT_STATISTICS
        self.tree = tree_shape(known, plan.draft_nodes, plan.draft_depth, self.spec.vocab_size)
        self.ranks = RankCounts()
        self.on_logits: OnLogits | None = None
        self._trees: dict[int, DraftTree] = {}
        self.tokens: list[int] = []
        self._checkpoint = checkpoint
        self._rereads = RereadWatch()
        self._parts = parts = make_parts(self.spec, plan)
        self._chunk, self._cache, self._state = parts.chunk, parts.cache, parts.state
        self._body, self._head = parts.body, parts.head
        self.lookup = TextLookup(LookupChoice(plan.lookup_nodes, plan.lookup_least), parts.text, backend.ops)
        groups, dense = checkpoint.weights(), checkpoint.dense_weights()
        self._player = player_of(backend, self.spec, groups, dense, self._cache, self._state)
        self._draft_head = DraftHead(self._head.recording, self.spec.rms_eps, groups, dense, backend.ops, self._logits)

    @classmethod
    def load(
        cls, path: str | Path, plan: Plan, *, kernels: Choice = "auto", statistics: RankStatistics | None = None
    ) -> Engine:
        """Open a folder under a plan; weights are mapped, not read. See `of`."""
        return cls.of(Checkpoint.open(path), plan, kernels=kernels, statistics=statistics)

    @classmethod
    def of(
        cls, checkpoint: Checkpoint, plan: Plan, *, kernels: Choice = "auto", statistics: RankStatistics | None = None
    ) -> Engine:
        """An open checkpoint under a plan; engines may share one.

        `statistics` shape the draft tree (None: the checkpoint's own, where it was evaluated); the text never depends
        on them.

        Raises:
            TwofoldError: the plan does not fit the checkpoint, or the kernels are missing.
        """
        check_plan(plan, checkpoint.spec, checkpoint.config)
        return cls(checkpoint, plan, choose_backend(kernels, plan.threads, plan.cpu_isa), statistics)

    @property
    def n_draft(self) -> int:
        """Nodes of the draft tree; its verify pass has one row more."""
        return self.tree.nodes

    @property
    def checkpoint(self) -> Checkpoint:
        """The open weights under the plan's activations; another engine may share the files."""
        return self._checkpoint

    @property
    def parts(self) -> Parts:
        """Cache, pass state and buffers."""
        return self._parts

    @property
    def player(self) -> Player | NativePlayer:
        """What replays the tapes."""
        return self._player

    @property
    def context_tokens(self) -> int:
        """How many tokens the text may have."""
        return self.plan.context_tokens

    @property
    def room(self) -> int:
        """How many more tokens fit the context."""
        return self.context_tokens - len(self.tokens)

    @property
    def reread_steps(self) -> int:
        """How many steps had to read weights from disk again (major page faults), because memory is short."""
        return self._rereads.steps

    @property
    def cached_tokens(self) -> int:
        """How many tokens at the start of the text are in the cache."""
        return self._cache.length

    def prefill(self, tokens: Sequence[int], on_progress: Progress | None = None) -> int:
        """Make `tokens` the text and compute what the cache does not have of it; returns how many were reused.

        The last token is left to the next step. After an interruption the finished chunks stay.

        Raises:
            ContextFull: more tokens than the context holds.
            CorruptFile: a weight file was written to since it was opened.
            ValueError: no tokens, or one outside the vocabulary.
        """
        tokens = [int(token) for token in tokens]
        self._check_tokens(tokens)
        self._checkpoint.check_unchanged()
        reused = self._common_prefix(tokens)
        reused = self._cache.roll_back(reused)
        self.lookup.keep(reused)
        self.tokens = tokens
        self._catch_up(on_progress)
        return reused

    def step(self, params: SamplingParams = GREEDY) -> StepResult:
        """Continue the text by one token or more.

        Raises:
            ContextFull: there is no room. EngineFailed: the logits are not finite. ValueError: there is no text.
            CorruptFile: a weight file changed while it was in use.
        """
        start = time.perf_counter()
        self._rereads.begin()
        self._check_room()
        self._catch_up()
        found = self.lookup.find(self.tokens)
        looked_up = self._look_up(found)
        draft = looked_up or self._draft_tree().draft(self.tokens[-1], self.spec.vocab_size, self._guess)
        checked = self._whole_pass(draft.tokens, draft.parents)
        self._checkpoint.check_intact()
        accepted = self._accept(draft, checked, params)
        emitted = self._commit(accepted)
        self.ranks.note(draft, accepted)
        if found is not None:
            self.lookup.note(found, emitted, was_drafted=looked_up is not None)
        self._rereads.end(len(draft.tokens))
        return StepResult(emitted, len(draft.tokens) - 1, len(accepted.path) - 1, time.perf_counter() - start)

    def truncate(self, n_tokens: int) -> None:
        """Keep the first `n_tokens` of the text."""
        if not 0 <= n_tokens <= len(self.tokens):
            raise ValueError(f"cannot keep {n_tokens} of {len(self.tokens)} tokens")
        self._cache.roll_back(min(self._cache.length, max(n_tokens - 1, 0)))
        self.lookup.keep(n_tokens)
        self.tokens = self.tokens[:n_tokens]

    def reset(self) -> None:
        """Forget the text."""
        self.truncate(0)

    def forward_logits(self, tokens: Sequence[int], *, use_residual: bool = True) -> F32:
        """Logits after every token of a text of its own: fp32 [n, vocab_size]. The engine's text is forgotten.

        Without the residual every decoder product is a draft's, the base alone over one plane of activations, but
        behind the base's own K and V. The head is whole, under the plan's activations.

        Raises:
            ContextFull, ValueError: as `prefill`. EngineFailed: a logit is not finite.
        """
        tokens = [int(token) for token in tokens]
        self._check_tokens(tokens)
        self.reset()
        logits = np.empty((len(tokens), self.spec.vocab_size), np.float32)
        try:
            for start in range(0, len(tokens), self._chunk):
                chunk = tokens[start : start + self._chunk]
                hidden = self._pass(chunk, range(-1, len(chunk) - 1), use_residual)
                for first in range(0, len(chunk), self._head.max_rows):
                    part = self._logits(hidden[first : first + self._head.max_rows])
                    logits[start + first : start + first + len(part)] = part
                self._cache.commit(range(len(chunk)))
        finally:
            self._cache.roll_back(0)
        self._checkpoint.check_intact()
        if not np.isfinite(logits).all():
            raise EngineFailed("the model's output is not finite", found="NaN or infinity", needed="finite logits")
        return logits

    def dry_pass(self, tokens: Sequence[int], *, use_residual: bool = True) -> F32:
        """Logits [rows, vocab_size] of a chain of `tokens` behind what is cached; nothing is committed. For timing."""
        parents = range(-1, len(tokens) - 1)
        return (
            self._whole_pass(tokens, parents).result
            if use_residual
            else self._logits(self._pass(tokens, parents, False))
        )

    def dry_draft(self, tokens: Sequence[int]) -> I64:
        """Guesses behind each of `tokens`, siblings behind what is cached; nothing is committed. For timing."""
        return self._guess(tokens, (-1,) * len(tokens), min(KEPT_RANKS, self.spec.vocab_size))

    def dry_prefill(self, tokens: Sequence[int]) -> None:
        """A prefill pass of `tokens` behind what is cached, without a head; nothing is committed. For timing."""
        self._pass(tokens, range(-1, len(tokens) - 1))

    def dry_step(self, tree: DraftTree) -> int:
        """A greedy step with `tree` behind what is cached: how many tokens it would give; nothing is committed. For
        timing.
        """
        draft = tree.draft(self.tokens[-1], self.spec.vocab_size, self._guess)
        return len(self._accept(draft, self._whole_pass(draft.tokens, draft.parents), GREEDY).tokens)

    def repeat_cached(self, n_tokens: int) -> None:
        """Fill the cache to `n_tokens` by repeating the rows that are there. For timing: passes then read as much as
        behind a real text of that length, but what they compute means nothing. `reset` before a real text.

        Raises:
            ValueError: nothing is cached, more is cached already, or the context is shorter.
        """
        if not n_tokens < self.context_tokens:
            raise ValueError(f"{n_tokens} tokens leave no room in a context of {self.context_tokens}")
        self._cache.repeat(n_tokens)
        self.lookup.keep(0)
        self.tokens = [self.tokens[i % len(self.tokens)] for i in range(n_tokens + 1)]

    def memory_report(self) -> dict[str, int]:
        """Bytes allocated per component; `weights_mapped` are the files behind the map."""
        return {
            "weights_mapped": self._checkpoint.mapped_bytes,
            "kv_cache": self._cache.nbytes,
            "buffers": self._body.nbytes + self._head.nbytes + self._player.nbytes,
            "tables": self._state.nbytes + self._parts.text.nbytes,
        }

    def close(self) -> None:
        """Let go of cache, buffers and maps; the engine cannot be used afterwards."""
        for name in ("_draft_head", "_player", "_parts", "_body", "_head", "_state", "_cache", "_checkpoint"):
            self.__dict__.pop(name, None)
        self.tokens = []

    def _check_tokens(self, tokens: list[int]) -> None:
        if not tokens or not 0 <= min(tokens) <= max(tokens) < self.spec.vocab_size:
            raise ValueError(f"a text needs tokens from 0 to {self.spec.vocab_size - 1}")
        if len(tokens) > self.context_tokens:
            raise ContextFull(
                "the text does not fit the context",
                found=f"{len(tokens)} tokens",
                needed=f"at most {self.context_tokens} tokens",
                hint="start anew (/reset), or plan a larger context: --ctx",
            )

    def _check_room(self) -> None:
        if not self.tokens:
            raise ValueError("there is no text to continue: prefill first")
        if self.room <= 0:
            raise ContextFull(
                "the context is full",
                found=f"{len(self.tokens)} tokens",
                needed=f"fewer than {self.context_tokens} tokens",
                hint="start anew (/reset), or plan a larger context: --ctx",
            )

    def _common_prefix(self, tokens: list[int]) -> int:
        limit = min(self._cache.length, len(tokens) - 1)
        return next((i for i in range(limit) if tokens[i] != self.tokens[i]), limit)

    def _catch_up(self, on_progress: Progress | None = None) -> None:
        """Bring the cache to all tokens but the last, chunk by chunk."""
        start, target = self._cache.length, len(self.tokens) - 1
        if on_progress is not None and target > start:
            on_progress(0, target - start)
        while (done := self._cache.length) < target:
            chunk = self.tokens[done : min(done + self._chunk, target)]
            self._pass(chunk, range(-1, len(chunk) - 1))
            self._checkpoint.check_intact()
            self._cache.commit(range(len(chunk)))
            if on_progress is not None:
                on_progress(self._cache.length - start, target - start)

    def _pass(self, tokens: Sequence[int], parents: Sequence[int], use_residual: bool = True) -> F32:
        """One pass over the last rows that `parents` lists, without the head. Returns the last layer's output."""
        return self._play(self._parts.body, tokens, parents, use_residual).result

    def _whole_pass(self, tokens: Sequence[int], parents: Sequence[int], use_residual: bool = True) -> Tape:
        """The same with the head, replayed as one; without the residual nothing is chosen."""
        return self._play(self._parts.whole, tokens, parents, use_residual)

    def _play(
        self, makers: TapeMaker | WholeTapes, tokens: Sequence[int], parents: Sequence[int], use_residual: bool
    ) -> Tape:
        if len(parents) == len(tokens):  # the first pass of a step makes room for all of them
            self._cache.make_room(max(len(tokens), self.plan.verify_rows))
        self._state.set(tokens, parents, self._cache.length, use_residual)
        tape = makers.tape(len(tokens))
        self._player.play(tape)
        return tape

    def _logits(self, hidden: F32, use_residual: bool = True) -> F32:
        self._state.use_residual = use_residual
        tape = self._head.tape(len(hidden))
        assert tape.source is not None
        np.copyto(tape.source, hidden)
        self._player.play(tape)
        return tape.result

    def _look_up(self, found: Found | None) -> Draft | None:
        """A draft from the text itself, where it is expected to give as many tokens as the plan's tree."""
        if found is None:
            return None
        return self.lookup.draft(self.tokens[-1], found, self.room - 1, self.tree.tokens)

    def _draft_tree(self) -> DraftTree:
        """The plan's tree, cut to what the context has room for: a check gives one token more than its path is deep."""
        depth = min(self.tree.depth, self.room - 1)
        if depth not in self._trees:
            self._trees[depth] = DraftTree(self.tree.above(depth))
        return self._trees[depth]

    def _guess(self, tokens: Sequence[int], parents: Sequence[int], k: int) -> I64:
        logits = self._whole_pass(tokens, parents, use_residual=False).result
        hidden = self._body.tape(len(tokens)).result
        try:
            return self._draft_head.guesses(hidden, logits, k)
        except ValueError as error:
            raise EngineFailed(
                f"the draft for position {len(self.tokens)} is not finite",
                found=str(error),
                needed="finite logits",
                hint="the checkpoint is damaged: quantise it again (twofold quantize MODEL -o DIR)",
            ) from None

    def _accept(self, draft: Draft, checked: Tape, params: SamplingParams) -> Accepted:
        """Walk the draft by the choices of the verifier, whose pass it was."""
        assert checked.choice is not None
        logits, ops, penalised = checked.result, self.backend.ops, params.repetition_penalty != 1
        best = checked.choice[:, 0].tolist()

        def choose_at(row: int, emitted: list[int]) -> int:
            position = len(self.tokens) + len(emitted)
            if self.on_logits is not None:
                self.on_logits(position, logits[row])
            history = [*self.tokens, *emitted] if penalised else ()
            return choose(logits[row], int(best[row]), params, position, history, ops)

        return accept(draft, choose_at)

    def _commit(self, accepted: Accepted) -> tuple[int, ...]:
        """Append what was emitted, as far as it fits; the cache follows (if interrupted here, by catching up)."""
        n = min(len(accepted.tokens), self.room)
        self.tokens = [*self.tokens, *accepted.tokens[:n]]
        self._cache.commit(accepted.path[:n])
        return accepted.tokens[:n]
