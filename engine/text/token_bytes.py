"""The bytes that a token stands for: the inverse of the byte alphabets that vocabularies use.

GPT-2's alphabet writes each byte as one printable character; SentencePiece's writes text as it is, a space as U+2581
and bytes without a piece as `<0xNN>`.
"""

from __future__ import annotations

import functools
import re

SPM_SPACE = "▁"
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


@functools.cache
def gpt2_alphabet() -> dict[str, int]:
    """Character → byte. Printable Latin-1 stands for itself, the other bytes follow from U+0100 in ascending order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


def gpt2_bytes(piece: str) -> bytes:
    """The bytes of a piece in GPT-2's alphabet; a piece with a character outside of it is plain text."""
    alphabet = gpt2_alphabet()
    try:
        return bytes([alphabet[char] for char in piece])
    except KeyError:
        return piece.encode("utf-8", "surrogateescape")


def spm_bytes(piece: str) -> bytes:
    """The bytes of a SentencePiece piece."""
    single = _BYTE_PIECE.match(piece)
    if single:
        return bytes([int(single[1], 16)])
    return piece.replace(SPM_SPACE, " ").encode("utf-8", "surrogateescape")
