"""`twofold run`: one prompt, one answer on stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.model_options import AnswerOptions, ModelOptions, SamplingOptions
from twofold.cli.option_groups import grouped

if TYPE_CHECKING:
    from twofold.engine.session import Piece, Session

SCHEMA_VERSION = 1
MAX_PROMPT_BYTES = 64 << 20


@grouped
def run(
    opening: ModelOptions,
    sampling: SamplingOptions,
    answering: AnswerOptions,
    model: Annotated[str, typer.Argument(help="Hub id, folder, .gguf file or alias.")],
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - or nothing reads stdin.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without a chat template.")] = False,
    output: FormatOption = "human",
) -> None:
    """Answer one prompt. The answer goes to stdout, everything else to stderr."""
    from twofold.profiles.errors import InvalidOption

    if raw and answering.system is not None:
        raise InvalidOption("--raw has no system prompt", hint="leave out --system, or write it into the prompt")
    text = read_prompt(prompt)
    options = opening.of(model)

    from twofold.cli.launch import keeping_ranks, launch, open_session
    from twofold.cli.observe import keeping_session

    launched = launch(options)
    if launched is None:
        return
    session = open_session(launched, sampling, answering, raw=raw)
    with keeping_ranks(launched), keeping_session(launched, session, "run"):
        answer_once(session, text, output)


def read_prompt(prompt: str | None) -> str:
    """The prompt of the command line, or standard input where it is `-` or left out.

    Raises:
        InvalidOption: there is none, it is empty, too long, or not UTF-8.
    """
    from twofold.profiles.errors import InvalidOption

    hint = "twofold run MODEL 'a question'"
    if prompt is None and sys.stdin.isatty():
        raise InvalidOption("there is no prompt", needed="a prompt, or text on stdin", hint=hint)
    if prompt is None or prompt == "-":
        data = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
        if len(data) > MAX_PROMPT_BYTES:
            raise InvalidOption("the prompt on stdin is too long", needed=f"at most {MAX_PROMPT_BYTES} bytes")
        try:
            prompt = data.decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"byte {error.start} is not"
            raise InvalidOption("the prompt on stdin is not UTF-8 text", found=found, hint=hint) from error
    if not prompt.strip():
        raise InvalidOption("the prompt is empty", hint=hint)
    return prompt


def answer_once(session: Session, text: str, output: str) -> None:
    """Answer and print: text as it comes, or one JSON document at the end.

    Raises:
        KeyboardInterrupt: the answer was stopped; what there is of it was printed.
    """
    from twofold.cli.output import print_json
    from twofold.cli.repl.loop import answer
    from twofold.cli.repl.screen import PlainScreen

    if output == "human":
        answer(session, text, PlainScreen(sys.stdout))
    else:
        collected = Collected()
        answer(session, text, collected)
        print_json(document(session, collected))
    if session.last is not None and session.last.finish == "interrupted":
        raise KeyboardInterrupt


class Collected:
    """A screen that shows nothing and keeps the text."""

    def __init__(self) -> None:
        self.texts = {"answer": "", "thinking": "", "notice": ""}

    def show(self, piece: Piece) -> None:
        self.texts[piece.kind] += piece.text

    def end(self) -> None:
        """Nothing to end."""


def document(session: Session, collected: Collected) -> dict[str, Any]:
    """The answer as JSON; every figure with its provenance."""
    from twofold.profiles.figures import measured, unknown

    last = session.last
    assert last is not None

    def figure(value: float | None, unit: str) -> dict[str, Any]:
        if value is None:
            return unknown(unit, "nothing was generated").to_json()
        return measured(value, unit, "this answer").to_json()

    return {
        "schema_version": SCHEMA_VERSION,
        "model": session.model,
        "text": collected.texts["answer"],
        "thinking": collected.texts["thinking"],
        "finish": last.finish,
        "prompt_tokens": last.prompt_tokens,
        "tokens": last.tokens,
        "checks": last.checks,
        "decode_tok_s": figure(last.tokens_per_second, "tok/s"),
        "tokens_per_check": figure(last.tokens_per_check, "tokens"),
        "first_token_s": figure(last.first_token_seconds, "s"),
        "plan": session.engine.plan.model_dump(mode="json"),
    }
