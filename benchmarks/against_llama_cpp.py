"""twofold against llama.cpp on the same weights: decode, prefill and KL, both engines in turn in one run.

Run: python benchmarks/against_llama_cpp.py [--model smollm2] [--tokens 64] [--rounds 8] [--format json]. Needs
`pip install '.[bench]'`, or `--binary PATH` to a llama-bench. Exits 1 when a bar is missed (not with --no-judge).

The Q8_0 file is made from the GGUF that twofold's checkpoint was made from, and kept in twofold's cache. Every engine
runs in a process of its own and is parked while another one works. Both are fed the same tokens (llama.cpp's tokenizer
is asked whether it agrees), answer greedily with the same threads and an f16 cache, and never stop early. No speed is
reported when twofold's kernels differ from numpy or when drafts change the text.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from versus.model import Model
    from versus.quality import Quality
    from versus.report import Run
    from versus.workers import Worker

    from twofold.planner.plan import Plan
    from twofold.profiles.figures import Figure


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="alias, .gguf file, or a checkpoint made from one")
    parser.add_argument("--source", help="the GGUF file that a checkpoint was made from, where it is elsewhere now")
    parser.add_argument("--tokens", type=_positive, default=64, help="length of each answer")
    parser.add_argument("--prompt-tokens", type=_positive, default=512, help="length of the timed prompt")
    parser.add_argument("--rounds", type=_positive, default=8, help="answers to each kind of text")
    parser.add_argument("--prefill-rounds", type=_positive, default=5)
    parser.add_argument("--threads", type=_positive, help="of both engines; else what the planner chooses")
    parser.add_argument("--draft-nodes", type=int, help="instead of the plan's")
    parser.add_argument("--draft-depth", type=int, help="with --draft-nodes; else a chain")
    parser.add_argument("--activations", choices=("int16", "int8"), help="of twofold; llama.cpp's are int8")
    parser.add_argument("--kl-tokens", type=int, help="held-out tokens to judge on; 0 for none, else all")
    parser.add_argument("--binary", type=Path, help="a llama-bench to time instead of llama-cpp-python")
    parser.add_argument("--format", choices=("human", "json"), default="human")
    parser.add_argument("--no-judge", action="store_true", help="report, and exit 0 whatever the bars say")
    parser.add_argument("--yes", action="store_true", help="fetch and quantise the model unasked")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value


def main(options: argparse.Namespace) -> None:
    """Measure, print, judge.

    Raises:
        SystemExit: 1, when a bar is missed. TwofoldError: whatever stands in the way, or makes speeds meaningless.
    """
    from versus import report

    from twofold.cli.output import err, out, print_json

    run = measure(options)
    load, cores = run.about["machine"]["load_average"], os.cpu_count() or 1
    if load > cores + 0.5 * run.about["machine"]["threads"]:
        err().warning(f"other work ran on this machine (load average {load:.1f}, {cores} cores): speeds are too low")
    if not options.no_judge:
        run.bars = _bars(run)
    if options.format == "json":
        print_json(run.to_json())
    else:
        report.show(run, out())
    missed = [bar for bar in run.bars if not bar.is_reached]
    for bar in missed:
        found = f"{bar.found.number:.4g}" if bar.found.is_known else f"unknown ({bar.found.by})"
        err().line(f"missed: {bar.name}: {found}, needed {bar.shown_need}")
    if missed:
        raise SystemExit(1)


def measure(options: argparse.Namespace) -> Run:
    """The whole run.

    Raises:
        TwofoldError: llama.cpp missing, a model that one side cannot run, or a failed check.
    """
    from versus import model as models
    from versus.q8_file import cached_q8_0, read_facts
    from versus.report import CHOSEN, LLAMA_Q8, LLAMA_SOURCE, PLAIN, Run
    from versus.timing import WorkerPlayer, check_same_text, check_same_tokens, time_decoding, time_prefill

    needs_python = _check_llama_cpp(options)
    model = models.open_model(options.model, options.source, assume_yes=options.yes)
    texts = models.texts_of(model, options.prompt_tokens)
    judged = [] if options.kl_tokens == 0 else models.held_out_texts(model, options.kl_tokens)
    chats = models.rendered(model, texts)
    context = models.context_for(
        model.spec, max(map(len, chats)), options.tokens, options.prompt_tokens, max(map(len, judged), default=0)
    )
    drafts = (options.draft_nodes, options.draft_depth)
    chosen, plain = models.plans(model, context, options.threads, *drafts, options.activations)
    with _stage("making the Q8_0 file"):
        q8_0 = cached_q8_0(model.source)
    with ExitStack() as stack:
        start = partial(_start, stack)
        ours = start("twofold", model.checkpoint, chosen, plain)
        theirs = {}
        if needs_python:
            theirs = {
                LLAMA_Q8: start("llama.cpp Q8_0", q8_0, chosen, plain),
                LLAMA_SOURCE: start("llama.cpp source", model.source, chosen, plain),
            }
        checks: dict[str, Any] = {"plan_threads": plain.threads}
        with _stage("checking kernels and tokenizers"):
            checks["kernels"] = ours.ask("self_check", PLAIN, texts["prose"].long[:16])
            checks["prompts_with_equal_tokens"] = (
                check_same_tokens(theirs[LLAMA_Q8], chats) if theirs else "not compared: llama-bench has no tokenizer"
            )
        ours_plain = WorkerPlayer(PLAIN, ours, (PLAIN,))
        ours_chosen = WorkerPlayer(CHOSEN, ours, (CHOSEN,)) if chosen.has_drafts else ours_plain
        q8_player = _q8_player(options, q8_0, plain.threads, theirs.get(LLAMA_Q8))
        source_players = [WorkerPlayer(LLAMA_SOURCE, theirs[LLAMA_SOURCE])] if theirs else []
        # Twofold's two settings stand on either side of the engine that both are compared with.
        players = list({id(one): one for one in (ours_chosen, q8_player, ours_plain, *source_players)}.values())
        with _stage("answers") as tell:
            decode = time_decoding(players, texts, options.tokens, options.rounds, tell)
        checks["answers_with_equal_text"] = check_same_text(ours_plain, ours_chosen)
        with _stage("prompts") as tell:
            in_turn = [q8_player, ours_plain, *source_players]
            prefill = time_prefill(in_turn, texts, options.prompt_tokens, options.prefill_rounds, tell)
        parked = {worker.name: _parked(worker) for worker in (ours, *theirs.values())}
        quality, reason = _quality(model, judged, ours, theirs)
        about = _about(model, ours, q8_player, theirs, chosen) | {"context_tokens": context}
    about["llama_cpp"]["q8_0_file"] = read_facts(q8_0).to_json()
    return Run(
        about=about,
        drafts=_drafts(chosen),
        tokens=options.tokens,
        prompt_tokens=options.prompt_tokens,
        decode=decode,
        prefill=prefill,
        players=players,
        checks=checks,
        parked=parked,
        quality=quality,
        no_quality=reason,
        llama_how="llama-bench, random tokens" if options.binary else "llama_decode, one token a call, argmax",
    )


def _check_llama_cpp(options: argparse.Namespace) -> bool:
    """Whether llama-cpp-python is what is timed.

    Raises:
        EngineUnavailable: it is missing, and no binary was given.
    """
    from versus.llama_side import INSTALL, missing_reason

    from twofold.profiles.errors import EngineUnavailable

    if options.binary is not None:
        return False
    reason = missing_reason()
    if reason is not None:
        raise EngineUnavailable(f"llama-cpp-python cannot be used: {reason}", hint=INSTALL)
    return True


def _start(stack: ExitStack, name: str, path: Path, chosen: Plan, plain: Plan) -> Worker:
    from versus.llama_side import LlamaSide
    from versus.report import CHOSEN, PLAIN
    from versus.twofold_side import TwofoldSide
    from versus.workers import Worker

    with _stage(f"starting {name}"):
        if path.is_dir():
            plans = {PLAIN: plain.to_json()} | ({CHOSEN: chosen.to_json()} if chosen.has_drafts else {})
            worker = Worker(name, TwofoldSide, checkpoint=path, plans=plans)
        else:
            worker = Worker(name, LlamaSide, path=path, threads=plain.threads, context_tokens=plain.context_tokens)
    stack.callback(worker.close)
    return worker


def _q8_player(options: argparse.Namespace, q8_0: Path, threads: int, worker: Worker | None) -> Any:
    from versus.llama_bench import LlamaBench
    from versus.report import LLAMA_Q8
    from versus.timing import BinaryPlayer, WorkerPlayer

    if worker is not None:
        return WorkerPlayer(LLAMA_Q8, worker)
    return BinaryPlayer(LLAMA_Q8, LlamaBench(options.binary, q8_0, threads))


def _quality(model: Model, texts: Any, ours: Worker, theirs: dict[str, Worker]) -> tuple[Quality | None, str]:
    """The engines' KL, or why there is none."""
    from versus.quality import measure_quality
    from versus.report import PLAIN, TWOFOLD_KL

    if not texts:
        return None, "not measured: --kl-tokens 0"
    candidates: dict[str, Callable[..., Any]] = {TWOFOLD_KL: partial(ours.ask, "logits", PLAIN)}
    candidates |= {name: partial(worker.ask, "logits") for name, worker in theirs.items()}
    with _stage("KL of every engine") as tell:
        return measure_quality(model.spec, model.source, texts, candidates, tell), "a llama-bench gives no logits"


def _about(model: Model, ours: Worker, q8_player: Any, theirs: dict[str, Worker], plan: Plan) -> dict[str, Any]:
    from versus.q8_file import read_facts
    from versus.report import LLAMA_SOURCE

    from twofold.cli.bench_facts import machine_facts
    from twofold.cli.version import commit
    from twofold.probes.cpu import read_cpu
    from twofold.probes.memory import read_memory

    facts, engine = read_facts(model.source), ours.ask("about")
    machine = machine_facts(read_cpu(), read_memory(), engine["isa"], engine["threads"])
    llama: dict[str, Any] = q8_player.worker.ask("about") if theirs else q8_player.binary.about()
    if theirs:
        llama["buffers_mib_of_the_source"] = theirs[LLAMA_SOURCE].ask("about")["buffers_mib"]
    return {
        "model": model.name,
        "activations": plan.activations,
        "commit": commit(),
        "machine": machine | {"load_average": os.getloadavg()[0]},
        "source": {
            "file": model.source.name,
            "sha256": model.source_sha256,
            "types": "/".join(facts.weights),
            **facts.to_json(),
        },
        "plan": plan.model_dump(mode="json"),
        "llama_cpp": llama,
    }


def _parked(worker: Worker) -> Figure:
    from twofold.profiles.figures import measured

    waited = worker.parked()
    by = "CPU time of the process while another engine worked, over that time"
    return measured(float(f"{waited.share:.3g}"), "cores", by, n=1)


def _drafts(plan: Plan) -> str:
    words = [f"{plan.draft_nodes} draft nodes, depth {plan.draft_depth}"] if plan.draft_nodes else []
    if plan.lookup_nodes:
        words.append(f"up to {plan.lookup_nodes} looked up in the text")
    return ", ".join(words) or "no drafts"


def _bars(run: Run) -> Any:
    from versus.judge import bars
    from versus.report import LLAMA_Q8, TWOFOLD_KL

    ratios = {what: figure for what, (figure, _) in run.ratios(LLAMA_Q8).items()}
    return bars(run.about["model"], ratios, run.kl(TWOFOLD_KL), run.kl(LLAMA_Q8))


@contextmanager
def _stage(what: str) -> Iterator[Callable[[float], None]]:
    """Say on stderr what is being done; where it is a terminal, how far it is."""
    from twofold.cli.output import err

    sink = err()
    if not sys.stderr.isatty():
        sink.line(what)
        yield lambda _share: None
        return
    with sink.progress() as bar:
        task = bar.add_task(what, total=1)
        yield lambda share: bar.update(task, completed=share)
        bar.update(task, completed=1)


if __name__ == "__main__":
    here = str(Path(__file__).resolve().parent)
    if here not in sys.path:  # under PYTHONSAFEPATH a script's folder is not there by itself
        sys.path.insert(0, here)
    from twofold.cli.errors import run_app

    parsed = arguments()
    raise SystemExit(run_app(partial(main, parsed)))
