"""The fill canary: a process of its own opens a plan as `chat` does and really fills the context.

A session that starts says nothing about one that is full: memory is touched as positions come. The process offers
itself first to the kernel's out-of-memory killer, so that nothing else of the person's goes.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.errors import TwofoldError
from twofold.profiles.text import one_line
from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from twofold.planner.plan import Plan
    from twofold.profiles.figures import Figure

LEAST_CONTEXT = 64
"""No smaller one is tried after a failure."""
_REREADS = 64
"""Major page faults after the first pass that say that weights were pushed out of memory and read again."""
_CHILD = "from twofold.cli.fill import child; child()"


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of filling a context.

    Attributes:
        context_tokens: what was to be filled; reached_tokens: how many positions were.
        rows: of the widest pass that ran on top.
        peak_mib: the process's peak of resident memory (0: it did not get that far).
        expected_mib, upper_mib: the plan's estimate and its upper bound.
        group_peak_mib: the control group's own peak, where the kernel counts one (other processes included).
        rereads: major page faults after the first pass.
        problem: why the plan is not verified; None: it is.
        smaller_context: the largest context of those tried afterwards that was filled.
    """

    context_tokens: int
    reached_tokens: int
    rows: int
    peak_mib: float
    expected_mib: float
    upper_mib: float
    group_peak_mib: float | None
    rereads: int
    problem: str | None
    smaller_context: int | None = None

    @property
    def is_filled(self) -> bool:
        """Filled, within the plan's upper estimate, without memory running short."""
        return self.problem is None

    def peak_figure(self) -> Figure:
        from twofold.profiles.figures import measured, unknown

        if not self.peak_mib:
            return unknown("MiB", "the process ended before it could say")
        by = f"peak resident memory (VmHWM) of a process that filled {self.reached_tokens} tokens"
        return measured(round(self.peak_mib, 1), "MiB", by, n=1)


def fill_apart(
    checkpoint: Path, plan: Plan, upper_mib: float, tell: Callable[[str, float], None] = lambda *_: None
) -> Filled:
    """Fill the plan's context in a new process; after a failure at the very start, smaller ones until one fills.

    Raises:
        KeyboardInterrupt: stopped; the process is ended.
    """
    found = _attempt(checkpoint, plan, upper_mib, tell)
    if found.is_filled or found.reached_tokens:
        return found
    context = plan.context_tokens // 2
    while context >= LEAST_CONTEXT:
        smaller = plan.model_copy(
            update={"context_tokens": context, "prefill_chunk": min(plan.prefill_chunk, context), "verified": None}
        )
        if _attempt(checkpoint, smaller, upper_mib, tell).reached_tokens >= context:
            return Filled(**{**_values(found), "smaller_context": context})
        context //= 2
    return found


def _values(filled: Filled) -> dict[str, Any]:
    return {name: getattr(filled, name) for name in Filled.__dataclass_fields__}


def _attempt(checkpoint: Path, plan: Plan, upper_mib: float, tell: Callable[[str, float], None]) -> Filled:
    tell("filling the context", 0.0)
    command = [sys.executable, "-c", _CHILD, str(checkpoint)]
    seen: dict[str, Any] = {}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(plan.to_json())
            process.stdin.close()
        for said in _said(process.stdout):
            seen |= said
            tell("filling the context", seen.get("filled", 0) / plan.context_tokens)
        complaint = process.stderr.read()
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    return _judged(plan, upper_mib, seen, code, complaint)


def _said(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            yield said


def _judged(plan: Plan, upper_mib: float, seen: dict[str, Any], code: int, complaint: str) -> Filled:
    reached, peak = int(seen.get("filled", 0)), float(seen.get("peak_mib", 0.0))
    rereads = int(seen.get("rereads", 0))
    problem: str | None = None
    if code < 0:
        problem = f"the process was ended by signal {-code} after {reached} tokens: memory may have been short"
    elif "failed" in seen:
        problem = f"it failed after {reached} tokens: {one_line(str(seen['failed']), 160)}"
    elif code or not peak or reached < plan.context_tokens:
        last = (complaint.strip().splitlines() or ["no message"])[-1]
        problem = f"the process ended with code {code} after {reached} tokens: {one_line(last, 160)}"
    elif peak > upper_mib:
        problem = f"it took {peak:,.0f} MiB, more than the plan's upper estimate of {upper_mib:,.0f} MiB"
    elif rereads > _REREADS:
        problem = f"memory is short: weights were read from disk again ({rereads} major page faults)"
    group = seen.get("group_peak_mib")
    return Filled(
        context_tokens=plan.context_tokens,
        reached_tokens=reached,
        rows=int(seen.get("rows", 0)),
        peak_mib=peak,
        expected_mib=plan.expected_ram_mib,
        upper_mib=upper_mib,
        group_peak_mib=float(group) if group is not None else None,
        rereads=rereads,
        problem=problem,
    )


def child() -> None:
    """In the new process: plan on stdin, checkpoint as the argument, one JSON object a line on stdout."""
    from twofold.planner.plan import Plan

    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    try:
        _fill(Path(sys.argv[1]), Plan.from_json(sys.stdin.read()))
    except (MemoryError, OSError, RuntimeError, TwofoldError) as error:
        _say(failed=f"{type(error).__name__}: {error}")


def _fill(checkpoint: Path, plan: Plan) -> None:
    """Open all that a session has, fill the cache with real text, put the widest check on top."""
    from twofold.cli.repl import loop, reader, screen  # noqa: F401 - resident in a session
    from twofold.engine.bench.prompts import bench_texts
    from twofold.engine.draft import DraftTree
    from twofold.engine.engine import Engine
    from twofold.engine.text import ChatTemplate, Tokenizer
    from twofold.probes.process import major_faults, process_memory

    tokenizer = Tokenizer.from_folder(checkpoint)
    engine = Engine.load(checkpoint, plan)
    texts = bench_texts(tokenizer, ChatTemplate.from_tokenizer(tokenizer), min(plan.context_tokens, 2048))
    long = texts["prose"].long
    text = (long * -(-plan.context_tokens // len(long)))[: plan.context_tokens]
    faults: list[int] = []

    def on_progress(done: int, _total: int) -> None:
        if done:
            faults.append(major_faults() or 0)
        _say(filled=done)

    engine.prefill(text, on_progress)
    engine.dry_step(DraftTree(engine.tree))
    rows = engine.n_draft + 1
    if plan.verify_rows > rows:  # as wide as what may be looked up in the text
        rows = len(engine.dry_pass(text[-1:] * plan.verify_rows))
    memory = process_memory()
    _say(
        filled=plan.context_tokens,
        rows=rows,
        peak_mib=memory.peak_mib if memory is not None else 0.0,
        group_peak_mib=_group_peak_mib(),
        rereads=(major_faults() or 0) - faults[0] if faults else 0,
    )


def _say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def _group_peak_mib() -> float | None:
    from twofold.probes.cgroups import ancestors

    for group in ancestors(Path("/"), "memory"):
        name = "memory.peak" if group.version == 2 else "memory.max_usage_in_bytes"
        with contextlib.suppress(OSError, ValueError):
            return int(Path(group.folder, name).read_text(encoding="ascii")) / MIB
    return None
