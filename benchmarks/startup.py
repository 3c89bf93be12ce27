"""How long a person waits for the command line: `--help`, a fit check, and the prompt of `chat` on its second start.

Run: python benchmarks/startup.py [--model smollm2] [--repeats 7] [--no-chat]. Prints one JSON document; exits 1 when a
bar is missed. The chat starts in a pseudo-terminal; its first, unmeasured start may fetch and quantise the model.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import re
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
BARS_S = {"help": 0.3, "fit": 2.0, "chat_prompt": 2.0}
FIRST_START_SECONDS = 900.0
START_SECONDS = 60.0
TWOFOLD = str(Path(sys.executable).with_name("twofold"))
FIT = ["fit", "google/gemma-4-31B-it", "--card", "RTX 4090", "--ctx", "32K"]
FIT_CODES = (0, 3, 4, 5)
_ESCAPES = re.compile(rb"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-_])")


def run_seconds(arguments: list[str], codes: tuple[int, ...]) -> float:
    """Wall seconds of a command.

    Raises:
        SystemExit: when it ends with another exit code.
    """
    start = time.perf_counter()
    done = subprocess.run([TWOFOLD, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - start
    if done.returncode not in codes:
        raise SystemExit(f"twofold {' '.join(arguments)} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return seconds


def prompt_seconds(model: str, limit_s: float) -> float:
    """Seconds until `twofold chat` shows its prompt in a terminal; it is then left with Ctrl-D.

    Raises:
        SystemExit: no prompt within `limit_s`; what the screen shows is printed.
    """
    master, slave = pty.openpty()
    variables = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", "PROMPT_TOOLKIT_NO_CPR": "1"}
    start = time.perf_counter()
    process = subprocess.Popen(
        [TWOFOLD, "chat", model, "--yes", "--no-history"],
        stdin=slave, stdout=slave, stderr=slave, env=variables, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        screen = b""
        while True:
            left = start + limit_s - time.perf_counter()
            chunk = _read(master, left)
            screen += chunk
            if _has_prompt(screen):
                seconds = time.perf_counter() - start
                break
            if not chunk:
                raise SystemExit(f"no prompt within {limit_s:.0f} s:\n{_plain(screen)[-2000:]}")
        os.write(master, b"\x04")
        while _read(master, 10.0):
            pass
        process.wait(10)
        return seconds
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


def _read(master: int, seconds: float) -> bytes:
    """What the terminal got within `seconds`; empty at the end or when time is up."""
    ready, _, _ = select.select([master], [], [], max(seconds, 0))
    if not ready:
        return b""
    try:
        return os.read(master, 65536)
    except OSError:  # the other side is closed
        return b""


def _plain(screen: bytes) -> str:
    return _ESCAPES.sub(b"", screen).decode("utf-8", "replace")


def _has_prompt(screen: bytes) -> bool:
    from twofold.cli.repl.reader import PROMPT

    lines = _plain(screen).replace("\r", "\n").split("\n")
    return any(line.startswith(PROMPT.rstrip()) for line in lines)


def measured(sample: Callable[[], float], repeats: int, by: str, bar_s: float) -> dict[str, Any]:
    """The median as a figure, after one unmeasured call that fills the file cache."""
    sample()
    samples = [sample() for _ in range(repeats)]
    quartiles = statistics.quantiles(samples, n=4, method="inclusive") if repeats > 1 else [samples[0]] * 3
    value = statistics.median(samples)
    return {
        "value": round(value, 4),
        "unit": "s",
        "source": "measured",
        "by": f"{by}; wall time, median",
        "n": repeats,
        "spread": round(quartiles[2] - quartiles[0], 4),
        "bar_s": bar_s,
        "reached": value <= bar_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="the model of the chat")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-chat", action="store_true", help="leave out the chat, which may quantise a model first")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats is at least 1")
    from twofold.cli.version import commit
    from twofold.probes.cpu import read_cpu

    cpu = read_cpu()
    found = {
        "help": measured(lambda: run_seconds(["--help"], (0,)), options.repeats, "twofold --help", BARS_S["help"]),
        "fit": measured(
            lambda: run_seconds(FIT, FIT_CODES), options.repeats, f"twofold {' '.join(FIT)}", BARS_S["fit"]
        ),
    }
    if not options.no_chat:
        prompt_seconds(options.model, FIRST_START_SECONDS)
        found["chat_prompt"] = measured(
            lambda: prompt_seconds(options.model, START_SECONDS),
            options.repeats,
            f"twofold chat {options.model}, until the prompt is shown, model prepared before",
            BARS_S["chat_prompt"],
        )
    document = {
        "schema_version": SCHEMA_VERSION,
        "commit": commit(),
        "machine": {
            "cpu": cpu.model.value,
            "usable_cpus": cpu.usable_cpus.value,
            "python": platform.python_version(),
            "load_average": os.getloadavg()[0],
        },
        "startup": found,
    }
    print(json.dumps(document, indent=2))
    return 0 if all(figure["reached"] for figure in found.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
