"""Tokens to text as they come: no half characters, and nothing of a stop string.

The text is the same however the tokens are grouped. A stop string ends the text where its match completes first; of
two that complete together the longer one counts.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from twofold.engine.text.tokenizer import Tokenizer


class StopStrings:
    """Cuts a stream of text at the first stop string, holding back what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(dict.fromkeys(stop for stop in stops if stop))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped: str | None = None

    def push(self, text: str) -> str:
        """What of `text`, after what was held, is certainly before any stop string."""
        if self.stopped is not None:
            return ""
        self._held += text
        found = self._first_match()
        if found is not None:
            start, self.stopped = found
            done, self._held = self._held[:start], ""
            return done
        keep = self._open_length()
        cut = len(self._held) - keep
        done, self._held = self._held[:cut], self._held[cut:]
        return done

    def flush(self) -> str:
        """What was held, when no more text comes."""
        done, self._held = self._held, ""
        return done

    def _first_match(self) -> tuple[int, str] | None:
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = self._held.find(stop)
            if start >= 0 and (best is None or (start + len(stop), start) < best[:2]):
                best = (start + len(stop), start, stop)
        return None if best is None else (best[1], best[2])

    def _open_length(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        for length in range(min(self._longest - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0


class Detokenizer:
    """The text of one answer.

    `push` returns text that is final; `flush`, called once at the end, returns the rest, with U+FFFD only for bytes
    that can no longer become a character. `stopped` is the stop string that ended the text, or None.
    """

    def __init__(self, tokenizer: Tokenizer, stop_strings: Sequence[str] = (), *, at_start: bool = True) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = StopStrings(stop_strings)
        self._drop_space = at_start and tokenizer.strips_first_space

    @property
    def stopped(self) -> str | None:
        return self._stops.stopped

    def push(self, token: int) -> str:
        data = self._tokenizer.token_bytes(token)
        if data and self._drop_space:
            data = data.removeprefix(b" ")
            self._drop_space = False
        return self._stops.push(self._utf8.decode(data))

    def flush(self) -> str:
        """The end of the text: what was held for a stop string, and U+FFFD for an unfinished character."""
        text = self._stops.push(self._utf8.decode(b"", True))
        return text if self.stopped is not None else text + self._stops.flush()
