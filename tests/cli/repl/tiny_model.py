"""A small random model with a byte vocabulary, opened for real; and a terminal (pty) in which the command line runs
on it.

Run as a script: `tiny_model.py CHECKPOINT COMMAND ARGUMENTS…` is the command line with only the preparation replaced.
"""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONTROL = ["<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role[0] + '\\n' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>a\\n' }}{% endif %}"
)
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-_])")


def write_model(folder: Path) -> Path:
    """A checkpoint of one layer with tokenizer files, answering with arbitrary bytes."""
    import tokenizers

    from twofold.engine.checkpoint import CheckpointConfig
    from twofold.engine.text import Tokenizer
    from twofold.engine.text.token_bytes import gpt2_alphabet

    alphabet = {byte: char for char, byte in gpt2_alphabet().items()}
    names = [*CONTROL, *(alphabet[byte] for byte in range(256))]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({name: i for i, name in enumerate(names)}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(CONTROL)
    checkpoints = _engine_conftest()
    config = checkpoints.TINY_CONFIG | {"vocab_size": len(names), "num_hidden_layers": 1}
    checkpoints.write_random_checkpoint(folder, config, CheckpointConfig(residual_bits=6))
    Tokenizer(inner, config={"eos_token": "<|im_end|>"}, chat_template=TEMPLATE).save(folder)
    return folder


def _engine_conftest() -> Any:
    file = Path(__file__).parents[2] / "engine" / "conftest.py"
    spec = importlib.util.spec_from_file_location("random_checkpoints", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def open_model(folder: Path, context_tokens: int = 512) -> Any:
    """What the preparation of a real model ends with; TINY_KERNELS=cpu takes the native ones."""
    from twofold.cli.launch import Launched
    from twofold.engine.engine import Engine
    from twofold.engine.text import ChatTemplate, Tokenizer
    from twofold.planner.plan import Plan

    kernels: Any = os.environ.get("TINY_KERNELS", "naive")
    plan = Plan(
        model="tiny",
        device="cpu",
        context_tokens=context_tokens,
        residual_bits=6,
        k_type="f16",
        v_type="f16",
        resident_linears=(),
        draft_nodes=0,
        draft_depth=0,
        prefill_chunk=32,
        threads=1,
        cpu_isa="auto" if kernels == "cpu" else kernels,
        expected_ram_mib=100.0,
        expected_vram_mib=0.0,
    )
    engine = Engine.load(folder, plan, kernels=kernels)
    tokenizer = Tokenizer.from_folder(folder)
    template = ChatTemplate.from_tokenizer(tokenizer)
    return Launched(engine, tokenizer, template, plan, engine.spec, folder)


class Terminal:
    """The command line in a pty: `type` keys, `wait` for text on the screen."""

    def __init__(self, checkpoint: Path, *arguments: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        variables = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        variables |= {
            "TERM": "xterm-256color",
            "COLUMNS": "100",
            "LINES": "40",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        } | environment
        command = [sys.executable, __file__, str(checkpoint), *arguments]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=variables, start_new_session=True
        )
        os.close(slave)
        self.screen = ""
        self._mark = 0

    def type(self, keys: str) -> None:
        self._mark = len(self.screen)
        os.write(self._master, keys.encode())

    def wait(self, text: str, seconds: float = 20) -> str:
        """What appeared since the last `type` or `wait`, once `text` is in it."""
        deadline = time.monotonic() + seconds
        while text not in (shown := _ESCAPES.sub("", self.screen[self._mark :])):
            if not self._read(deadline):
                raise AssertionError(f"waited for {text!r}, the screen shows:\n{shown}")
        self._mark += self.screen[self._mark :].index(text) if text in self.screen[self._mark :] else 0
        return shown

    def leave(self, seconds: float = 20) -> int:
        """Wait for the end; the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(max(deadline - time.monotonic(), 1))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.screen += data.decode("utf-8", "replace")
        return bool(data)


def _own_terminal() -> None:
    """Make the pty the controlling terminal, so that Ctrl-C becomes SIGINT."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def main() -> int:
    from twofold import cli
    from twofold.cli import launch

    if os.isatty(0):
        _own_terminal()
    checkpoint = Path(sys.argv[1])
    launch.launch = lambda *_: open_model(checkpoint)  # type: ignore[attr-defined]
    sys.argv = ["twofold", *sys.argv[2:]]
    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())
