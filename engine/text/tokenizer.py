"""Text to tokens and back. Text from a person never becomes a control token; a template's own text may.

Wraps the `tokenizers` package; knows nothing of the engine. Chat templates and end tokens travel with the vocabulary,
since they live in the same files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from twofold.engine.text import text_files
from twofold.engine.text.token_bytes import SPM_SPACE, gpt2_bytes, spm_bytes
from twofold.profiles.errors import CorruptFile, UnsupportedModel

END_OF_TURN = frozenset(
    ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>", "<|endoftext|>", "</s>")
)
"""Control tokens that end an answer wherever a vocabulary has them."""


class Tokenizer:
    """A vocabulary with its rules.

    Attributes:
        config: the contents of tokenizer_config.json.
        generation_config: the contents of generation_config.json (defaults for sampling, end tokens).
        chat_template: the Jinja source, or None.
    """

    def __init__(
        self,
        inner: Any,
        *,
        config: dict[str, Any] | None = None,
        generation_config: dict[str, Any] | None = None,
        chat_template: str | None = None,
        end_ids: Sequence[int] = (),
        name: str = "the model",
    ) -> None:
        self._inner = inner
        self.name = name
        self.config = config or {}
        self.generation_config = generation_config or {}
        self.chat_template = chat_template
        self._to_bytes, self.strips_first_space = _alphabet(inner, name)
        self._pieces: dict[int, bytes] = {}
        added = inner.get_added_tokens_decoder()
        self._special = {token.content: (i, token.lstrip, token.rstrip) for i, token in added.items() if token.special}
        self._added = {i: token.content for i, token in added.items()}
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.eos_ids = self._end_ids(end_ids)

    @classmethod
    def from_folder(cls, path: Path) -> Tokenizer:
        """The tokenizer of a Hugging Face-shaped folder.

        Raises:
            UnsupportedModel: there is no tokenizer.json.
            CorruptFile: a file that cannot be parsed.
        """
        import tokenizers

        file = path / "tokenizer.json"
        if not file.is_file():
            raise UnsupportedModel(
                f"{path} has no tokenizer.json",
                found=", ".join(sorted(p.name for p in path.glob("*token*"))) or "no tokenizer files",
                hint="use a copy of the model that carries tokenizer.json",
            )
        try:
            inner = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:
            raise CorruptFile(f"{file} cannot be read: {error}", hint="get the file again") from error
        files = text_files.read_folder(path)
        return cls(
            inner,
            config=files.tokenizer_config,
            generation_config=files.generation_config,
            chat_template=files.chat_template,
            end_ids=files.end_ids,
            name=path.name,
        )

    @classmethod
    def from_gguf(cls, path: Path) -> Tokenizer:
        """The tokenizer built from a GGUF file's vocabulary.

        Raises:
            UnsupportedModel: a kind of vocabulary, or a pre-tokenizer, that is not known.
            CorruptFile: not a GGUF file, or a vocabulary that contradicts itself.
        """
        import tokenizers

        from twofold.engine.text.gguf_vocab import read_vocabulary

        vocabulary = read_vocabulary(path)
        document = json.dumps(vocabulary.tokenizer_json)
        vocabulary.tokenizer_json.clear()  # a large vocabulary's takes hundreds of megabytes, as does what follows
        try:
            inner = tokenizers.Tokenizer.from_str(document)
        except Exception as error:
            raise CorruptFile(f"the vocabulary of {path} cannot be used: {error}") from error
        return cls(
            inner,
            config=vocabulary.tokenizer_config,
            generation_config=vocabulary.generation_config,
            chat_template=vocabulary.chat_template,
            end_ids=vocabulary.generation_config["eos_token_id"],
            name=path.name,
        )

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer of a folder or of a GGUF file."""
        return cls.from_folder(path) if path.is_dir() else cls.from_gguf(path)

    @property
    def vocab_size(self) -> int:
        """Ids that have a meaning; a model's embedding may have more rows."""
        return int(self._inner.get_vocab_size(with_added_tokens=True))

    @property
    def special_contents(self) -> frozenset[str]:
        """The text forms of all control tokens."""
        return frozenset(self._special)

    @functools.cached_property
    def prefix_ids(self) -> list[int]:
        """What the vocabulary puts before any text (the beginning-of-sequence token, or nothing)."""
        ids = [int(i) for i in self._inner.encode("", add_special_tokens=True).ids]
        return ids[:1] if ids and ids[0] == self.bos_id else []

    @property
    def bos_id(self) -> int | None:
        token = self.token_text("bos_token")
        return None if token is None else self._inner.token_to_id(token)

    def token_text(self, role: str) -> str | None:
        """The text of a named token (`bos_token`, `eos_token`, …) of tokenizer_config.json."""
        value = self.config.get(role)
        if isinstance(value, dict):
            value = value.get("content")
        return value if isinstance(value, str) else None

    def token_id(self, text: str) -> int | None:
        """The id of a token by its text form, or None."""
        found = self._inner.token_to_id(text)
        return None if found is None else int(found)

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Tokens of `text`, without a beginning-of-sequence token.

        With `allow_special`, text that spells a control token becomes that token; never pass a person's text so.
        """
        self._inner.encode_special_tokens = not allow_special
        return [int(i) for i in self._inner.encode(_scalar_values(text), add_special_tokens=False).ids]

    def encode_marked(self, text: str, mark: str) -> list[int]:
        """Tokens of a rendered template in which `mark` breaks every control token that a person spelled out.

        Control tokens are found in `text` as it is; the marks are then removed from what lies between them.
        """
        if mark not in text:
            return self.encode(text, allow_special=True)
        ids: list[int] = []
        for part in self._split_special(text):
            if isinstance(part, int):
                ids.append(part)
            elif part := part.replace(mark, ""):
                ids += self._encode_inside(part) if ids else self.encode(part)
        return ids

    def _split_special(self, text: str) -> Iterator[int | str]:
        """Control tokens (ids) and the text between them, with the space that a token swallows on its sides."""
        longest_first = sorted(self._special, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first)))
        start, swallow = 0, False
        for found in pattern.finditer(text) if longest_first else ():
            token, takes_left, takes_right = self._special[found[0]]
            between = text[start : found.start()]
            between = between.lstrip() if swallow else between
            yield between.rstrip() if takes_left else between
            yield token
            start, swallow = found.end(), takes_right
        rest = text[start:]
        yield rest.lstrip() if swallow else rest

    def _encode_inside(self, text: str) -> list[int]:
        """Tokens of text that follows other tokens: a vocabulary that adds a space at the very start adds none here."""
        pre = self._inner.pre_tokenizer
        if getattr(pre, "prepend_scheme", None) != "first":
            return self.encode(text)
        import tokenizers

        middle = tokenizers.pre_tokenizers.Metaspace(
            replacement=pre.replacement, prepend_scheme="never", split=pre.split
        )
        self._inner.pre_tokenizer = middle
        try:
            return self.encode(text)
        finally:
            self._inner.pre_tokenizer = pre

    def token_bytes(self, token: int, *, keep_special: bool = False) -> bytes:
        """The bytes that `token` adds to the text; a control token adds none unless `keep_special`."""
        if token in self.special_ids and not keep_special:
            return b""
        found = self._pieces.get(token)
        if found is None:
            if token in self._added:
                content = self._added[token]
                if self._to_bytes is spm_bytes and token not in self.special_ids:
                    content = content.replace(SPM_SPACE, " ")  # Gemma's runs of spaces
                found = content.encode("utf-8", "surrogateescape")
            else:
                piece = self._inner.id_to_token(token)
                found = b"" if piece is None else self._to_bytes(piece)
            self._pieces[token] = found
        return found

    def decode(self, tokens: Sequence[int], *, keep_special: bool = False) -> str:
        """The text of whole `tokens`; bytes that are not UTF-8 become U+FFFD."""
        data = b"".join(self.token_bytes(token, keep_special=keep_special) for token in tokens)
        if self.strips_first_space and data.startswith(b" "):
            data = data[1:]
        return data.decode("utf-8", "replace")

    @functools.cached_property
    def sha256(self) -> str:
        """A checksum of vocabulary and rules."""
        return hashlib.sha256(self._inner.to_str().encode("utf-8")).hexdigest()

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the files beside it, each one whole or not at all."""
        text_files.write_folder(
            folder,
            tokenizer_json=self._inner.to_str(),
            files=text_files.TextFiles(
                tokenizer_config=self.config,
                generation_config=self.generation_config | {"eos_token_id": list(self.eos_ids)},
                chat_template=self.chat_template,
                end_ids=self.eos_ids,
            ),
        )

    def _end_ids(self, declared: Sequence[int]) -> tuple[int, ...]:
        ids = set(declared)
        named = self.token_text("eos_token")
        if named is not None and (found := self.token_id(named)) is not None:
            ids.add(found)
        ids |= {self._special[text][0] for text in END_OF_TURN & self._special.keys()}
        return tuple(sorted(ids))


def _scalar_values(text: str) -> str:
    """`text` as Unicode scalar values: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _alphabet(inner: Any, name: str) -> tuple[Callable[[str], bytes], bool]:
    """How pieces spell bytes, and whether the first space of a text is dropped, from the decoder's description."""
    decoder = inner.decoder
    rules = json.loads(decoder.__getstate__()) if decoder is not None else {}
    steps = rules.get("decoders", [rules])
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return gpt2_bytes, False
    if kinds & {"ByteFallback", "Metaspace"}:
        strips = any(
            (step.get("type") == "Strip" and step.get("start", 0) > 0)
            or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
            for step in steps
        )
        return spm_bytes, strips
    raise UnsupportedModel(
        f"the tokenizer of {name} is of a kind that is not understood",
        found=f"decoder {', '.join(sorted(str(kind) for kind in kinds))}",
        needed="byte-level BPE, or SentencePiece with byte fallback",
    )


def write_text_files(source: Path, folder: Path) -> Tokenizer:
    """Give the checkpoint in `folder` the text files of `source`: copied from a folder, built from a GGUF file.

    Returns the tokenizer as it will be loaded from `folder`.
    """
    if source.is_dir():
        Tokenizer.from_folder(source)
        text_files.copy_folder(source, folder)
    else:
        Tokenizer.from_gguf(source).save(folder)
    return Tokenizer.from_folder(folder)
