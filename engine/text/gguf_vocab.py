"""A `tokenizer.json` built from the vocabulary in a GGUF file's metadata.

Two kinds are understood: `gpt2` (byte-level BPE with stored merges) and `llama` (SentencePiece BPE with scores, whose
merges follow from the scores). Token types follow the GGUF specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.engine.text.pretokenizers import PreTokenizer, pre_tokenizer
from twofold.engine.text.token_bytes import SPM_SPACE
from twofold.profiles.errors import CorruptFile, UnsupportedModel

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_KEY = "tokenizer.ggml."


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """What a GGUF file says about text. `tokenizer_json` is a complete document for the `tokenizers` package."""

    tokenizer_json: dict[str, Any]
    tokenizer_config: dict[str, Any]
    generation_config: dict[str, Any]
    chat_template: str | None


def read_vocabulary(path: Path) -> GgufVocabulary:
    """The vocabulary of the GGUF file at `path`.

    Raises:
        CorruptFile: not a GGUF file, truncated, or a vocabulary that contradicts itself.
        UnsupportedModel: a kind of vocabulary that is not understood.
    """
    from twofold.profiles.readers.gguf_header import read_gguf_header

    return vocabulary_from_fields(read_gguf_header(path, keep_arrays=True).fields, str(path))


def vocabulary_from_fields(fields: Mapping[str, Any], name: str) -> GgufVocabulary:
    """Like `read_vocabulary`, from the metadata keys; `name` is for messages."""
    kind = fields.get(f"{_KEY}model")
    tokens = _strings(fields, "tokens", name)
    types = fields.get(f"{_KEY}token_type") or [_NORMAL] * len(tokens)
    if not isinstance(types, list) or len(types) != len(tokens):
        raise _damaged(name, f"{len(tokens)} tokens but another number of token types")
    if kind == "gpt2":
        rules = pre_tokenizer(fields.get(f"{_KEY}pre"), name)
        document = _byte_level(tokens, _strings(fields, "merges", name), rules, name)
        adds_bos = rules.adds_bos
    elif kind == "llama":
        document = _sentencepiece(fields, tokens, types, name)
        adds_bos = True
    else:
        raise UnsupportedModel(
            f"the vocabulary of {name} cannot be used",
            found=f"tokenizer.ggml.model = {kind!r}",
            needed="gpt2 or llama",
            hint="use the model's original folder or Hub id, which carries tokenizer.json",
        )
    document["added_tokens"] = _added_tokens(tokens, types, after_normalizer=_spm_without_prefix(kind, fields))
    named = {role: _special(fields, role, tokens, name) for role in ("bos", "eos", "unknown", "padding")}
    bos = named["bos"]
    if bos is not None and fields.get(f"{_KEY}add_bos_token", adds_bos):
        document["post_processor"] = _prepends(tokens[bos], bos)
    ends = [i for i in (named["eos"], *(_special(fields, r, tokens, name) for r in ("eot", "eom"))) if i is not None]
    template = fields.get("tokenizer.chat_template")
    return GgufVocabulary(
        tokenizer_json=document,
        tokenizer_config=_config(named, tokens),
        generation_config={"bos_token_id": bos, "eos_token_id": sorted(set(ends))},
        chat_template=template if isinstance(template, str) else None,
    )


def _damaged(name: str, why: str) -> CorruptFile:
    return CorruptFile(f"the vocabulary of {name} is damaged: {why}", hint="get the file again")


def _strings(fields: Mapping[str, Any], key: str, name: str) -> list[str]:
    values = fields.get(_KEY + key)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise _damaged(name, f"no {_KEY}{key}")
    return values


def _special(fields: Mapping[str, Any], role: str, tokens: list[str], name: str) -> int | None:
    value = fields.get(f"{_KEY}{role}_token_id")
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < len(tokens):
        raise _damaged(name, f"{role}_token_id is {value!r}, with {len(tokens)} tokens")
    return value


def _document(model: dict[str, Any], **parts: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return {"version": "1.0", **empty, "added_tokens": [], "model": {"type": "BPE", **model}, **parts}


def _ids(tokens: list[str]) -> dict[str, int]:
    """Token → id; of equal tokens the first one counts."""
    return {token: i for i, token in reversed(list(enumerate(tokens)))}


def _byte_level(tokens: list[str], merges: list[str], rules: PreTokenizer, name: str) -> dict[str, Any]:
    vocab = _ids(tokens)
    pairs: list[list[str]] = []
    for line in merges:
        left, _, right = line.partition(" ")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise _damaged(name, f"the merge {line!r} names a token that is not there")
        pairs.append([left, right])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return _document(
        {"vocab": vocab, "merges": pairs, "ignore_merges": rules.ignore_merges, "byte_fallback": False},
        normalizer={"type": "NFC"} if rules.normalize_nfc else None,
        pre_tokenizer=rules.to_json(),
        decoder=byte_level,
    )


def _sentencepiece(fields: Mapping[str, Any], tokens: list[str], types: list[int], name: str) -> dict[str, Any]:
    scores = fields.get(f"{_KEY}scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise _damaged(name, "its scores are missing or not one per token")
    prefix = bool(fields.get(f"{_KEY}add_space_prefix", True))
    listed = fields.get(f"{_KEY}merges")
    merges = [line.split(" ", 1) for line in listed] if listed else merges_from_scores(tokens, scores, types)
    unknown = fields.get(f"{_KEY}unknown_token_id")
    if unknown is None and _UNKNOWN in types:
        unknown = types.index(_UNKNOWN)
    space = {"type": "Replace", "pattern": {"String": " "}, "content": SPM_SPACE}
    steps = [{"type": "Prepend", "prepend": SPM_SPACE}, space] if prefix else [space]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPM_SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return _document(
        {
            "vocab": _ids(tokens),
            "merges": merges,
            "unk_token": None if unknown is None else tokens[int(unknown)],
            "byte_fallback": _BYTE in types,
            "fuse_unk": True,
        },
        normalizer={"type": "Sequence", "normalizers": steps},
        decoder={"type": "Sequence", "decoders": decoders},
    )


def merges_from_scores(tokens: list[str], scores: list[float], types: list[int]) -> list[list[str]]:
    """The merge list of a SentencePiece BPE model: every way to join two pieces into a third, the best score first.

    SentencePiece keeps no merge list: it joins the adjacent pair whose result has the highest score. Ordering all
    pairs by the score of what they make gives the same result, except where two pairs make the same piece and the
    position alone decides.
    """
    usable = {token: i for i, token in enumerate(tokens) if types[i] in (_NORMAL, _USER_DEFINED, _UNUSED)}
    found: list[tuple[float, int, int, str, str]] = []
    for token, i in usable.items():
        for cut in range(1, len(token)):
            left, right = usable.get(token[:cut]), usable.get(token[cut:])
            if left is not None and right is not None:
                found.append((-scores[i], left, right, token[:cut], token[cut:]))
    found.sort()
    return [[left, right] for _, _, _, left, right in found]


def _spm_without_prefix(kind: Any, fields: Mapping[str, Any]) -> bool:
    return kind == "llama" and not fields.get(f"{_KEY}add_space_prefix", True)


def _added_tokens(tokens: list[str], types: list[int], *, after_normalizer: bool) -> list[dict[str, Any]]:
    """Tokens that are never split. SentencePiece finds user-defined ones (runs of spaces in Gemma's vocabulary) after
    spaces became U+2581, so that a U+2581 in the text is one of them; with `after_normalizer` so do we.
    """
    kinds = {_CONTROL: True, _UNKNOWN: True, _USER_DEFINED: False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    return [
        {
            "id": i,
            "content": token,
            **flags,
            "normalized": after_normalizer and kind == _USER_DEFINED,
            "special": kinds[kind],
        }
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in kinds and token
    ]


def _prepends(token: str, token_id: int) -> dict[str, Any]:
    def sequence(name: str) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": 0}}

    first = {"SpecialToken": {"id": token, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, sequence("A")],
        "pair": [first, sequence("A"), first, sequence("B")],
        "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}},
    }


def _config(named: Mapping[str, int | None], tokens: list[str]) -> dict[str, Any]:
    keys = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for role, key in keys.items():
        index = named[role]
        if index is not None:
            config[key] = tokens[index]
    return config
