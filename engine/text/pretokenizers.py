"""How a vocabulary of the GPT-2 kind cuts text before merging, by the name that a GGUF file gives it.

Each entry says what the published `tokenizer.json` of the model family does: a split pattern (Oniguruma syntax), then
the byte alphabet of GPT-2. A name that is not listed is refused: a wrong split gives plausible but wrong tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twofold.profiles.errors import UnsupportedModel

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_TAIL}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`pattern` None means GPT-2's own pattern; `single_digits` splits every numeric character off first."""

    pattern: str | None = None
    single_digits: bool = False
    ignore_merges: bool = False
    normalize_nfc: bool = False
    adds_bos: bool = False

    def to_json(self) -> dict[str, Any]:
        """The `pre_tokenizer` object of a tokenizer.json."""
        steps: list[dict[str, Any]] = []
        if self.single_digits:
            steps.append({"type": "Digits", "individual_digits": True})
        if self.pattern is not None:
            pattern = {"Regex": self.pattern}
            steps.append({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False})
        steps.append(
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": self.pattern is None}
        )
        return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


_GPT2 = PreTokenizer()
_DIGITS = PreTokenizer(single_digits=True)
_LLAMA_BPE = PreTokenizer(_LLAMA3, ignore_merges=True, adds_bos=True)
_QWEN = PreTokenizer(_QWEN2, normalize_nfc=True)

_BY_NAME = {
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "llama-bpe": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "falcon3": _LLAMA_BPE,
    "dbrx": PreTokenizer(_LLAMA3),
    "smaug-bpe": PreTokenizer(_LLAMA3),
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "tekken": PreTokenizer(_TEKKEN, ignore_merges=True, adds_bos=True),
}


def pre_tokenizer(name: str | None, model: str) -> PreTokenizer:
    """The rules that `tokenizer.ggml.pre` names.

    Raises:
        UnsupportedModel: when the name is missing or not known.
    """
    known = None if name is None else _BY_NAME.get(name)
    if known is None:
        raise UnsupportedModel(
            f"the vocabulary of {model} cannot be used: its way of splitting text is not known",
            found="no tokenizer.ggml.pre" if name is None else f"tokenizer.ggml.pre = {name!r}",
            needed=f"one of {', '.join(sorted(_BY_NAME))}",
            hint="use the model's original folder or Hub id, which carries tokenizer.json",
        )
    return known
