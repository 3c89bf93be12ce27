"""llama.cpp as a benchmark drives it: `llama_decode` through llama-cpp-python's C bindings.

Its own defaults (flash attention, repacking, batch sizes), all layers on the CPU, and as little Python per token as
there can be: one call, and an argmax over the logits where they lie. What `llama-bench` times is the same call.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twofold.profiles.errors import EngineFailed, TwofoldError
from versus.answers import Answer

INSTALL = "pip install '.[bench]' (it compiles llama.cpp: some minutes), or --binary PATH to a llama-bench"
LOGITS_AT_ONCE = 128
_BUFFER = re.compile(r"(\S+) model buffer size\s*=\s*([\d.]+) MiB")
_FLASH = re.compile(r"flash_attn\s*= (\w+)")


def missing_reason() -> str | None:
    """Why llama-cpp-python cannot be used, or None."""
    try:
        import llama_cpp  # noqa: F401
    except Exception as error:  # noqa: BLE001 - a broken shared library raises RuntimeError or OSError
        return f"{type(error).__name__}: {error}"
    return None


class LlamaSide:
    """A GGUF file under llama.cpp. `context_tokens` is `n_ctx`; `threads` serves decoding and prompts.

    Raises:
        TwofoldError: the file or context is refused; the last lines of llama.cpp's log are in the message.
    """

    def __init__(self, path: Path, threads: int, context_tokens: int) -> None:
        import llama_cpp

        self._api: Any = llama_cpp
        self._log: list[str] = []
        self._keep_log = llama_cpp.llama_log_callback(lambda _level, text, _data: self._log.append(_text(text)))
        llama_cpp.llama_log_set(self._keep_log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_default_params()
        model.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), model)
        if not self._model:
            raise self._refused(f"llama.cpp cannot load {path.name}")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context_tokens
        context.n_threads = context.n_threads_batch = threads
        self._batch_tokens = min(int(context.n_batch), context_tokens)
        self._threads = threads
        self._context = llama_cpp.llama_init_from_model(self._model, context)
        if not self._context:
            raise self._refused(f"llama.cpp cannot open a context of {context_tokens} tokens for {path.name}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._vocab_size = int(llama_cpp.llama_vocab_n_tokens(self._vocab))

    def decode(self, prompt: Sequence[int], n_tokens: int) -> Answer:
        """Answer greedily, end tokens or not; the prompt's pass (all but its last token) is not timed."""
        self._forget()
        if len(prompt) > 1:
            self._run(prompt[:-1])
        token, tokens = (ctypes.c_int32 * 1)(prompt[-1]), []
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(n_tokens):
            self._decode(self._api.llama_batch_get_one(token, 1))
            token[0] = int(self._rows(1)[0].argmax())
            tokens.append(token[0])
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        return Answer(tuple(tokens), seconds, cpu_seconds, n_tokens)

    def prefill(self, tokens: Sequence[int]) -> float:
        """Seconds for `tokens` from an empty cache."""
        self._forget()
        start = time.perf_counter()
        self._run(tokens)
        self._rows(1)  # waits for the last pass
        return time.perf_counter() - start

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """fp32 logits [len(tokens), vocab_size], with the activations' rounding that the file's type brings."""
        self._forget()
        found = np.empty((len(tokens), self._vocab_size), np.float32)
        batch = self._api.llama_batch_init(LOGITS_AT_ONCE, 0, 1)
        try:
            for first in range(0, len(tokens), LOGITS_AT_ONCE):
                piece = tokens[first : first + LOGITS_AT_ONCE]
                batch.n_tokens = len(piece)
                for row, token in enumerate(piece):
                    batch.token[row], batch.pos[row] = token, first + row
                    batch.n_seq_id[row], batch.seq_id[row][0], batch.logits[row] = 1, 0, 1
                self._decode(batch)
                found[first : first + len(piece)] = self._rows(len(piece))
        finally:
            self._api.llama_batch_free(batch)
        return found

    def tokenize(self, text: str) -> list[int]:
        """Tokens of a rendered template: control tokens are read as such, nothing is put in front."""
        data = text.encode()
        room = len(data) + 8
        ids = (ctypes.c_int32 * room)()
        n = self._api.llama_tokenize(self._vocab, data, len(data), ids, room, False, True)
        if n < 0:
            raise EngineFailed("llama.cpp cannot tokenise the prompt", found=str(n))
        return list(ids[:n])

    def about(self) -> dict[str, Any]:
        """Version, what it was compiled for, and where the weights lie."""
        log = "".join(self._log)
        flash = _FLASH.search(log)
        return {
            "version": f"llama-cpp-python {self._api.__version__}, {_ggml_version(self._api)}",
            "features": self._api.llama_print_system_info().decode().strip(),
            "buffers_mib": {name: float(size) for name, size in _BUFFER.findall(log)},
            "flash_attention": flash[1] if flash else "unknown",
            "threads": self._threads,
        }

    def _forget(self) -> None:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)

    def _run(self, tokens: Sequence[int]) -> None:
        for first in range(0, len(tokens), self._batch_tokens):
            piece = tokens[first : first + self._batch_tokens]
            ids = (ctypes.c_int32 * len(piece))(*piece)
            self._decode(self._api.llama_batch_get_one(ids, len(piece)))

    def _decode(self, batch: Any) -> None:
        code = self._api.llama_decode(self._context, batch)
        if code != 0:
            raise self._refused(f"llama_decode ended with {code}")

    def _rows(self, n: int) -> np.ndarray:
        """The last pass's output rows, where they lie."""
        return np.ctypeslib.as_array(self._api.llama_get_logits(self._context), (n, self._vocab_size))

    def _refused(self, what: str) -> TwofoldError:
        lines = "".join(self._log).strip().splitlines()[-3:]
        return TwofoldError(what, found="; ".join(lines) or "no message")


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _ggml_version(api: Any) -> str:
    """`ggml 0.9.4 (commit abc)`; older libraries do not say."""
    folder = Path(api.__file__).parent / "lib"
    for path in sorted(folder.glob("*ggml-base*")):
        try:
            library = ctypes.CDLL(str(path))
            library.ggml_version.restype = library.ggml_commit.restype = ctypes.c_char_p
            return f"ggml {library.ggml_version().decode()} (commit {library.ggml_commit().decode()})"
        except (OSError, AttributeError):
            continue
    return "ggml of unknown version"
