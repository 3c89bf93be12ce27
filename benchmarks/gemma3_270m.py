"""The real Gemma 3 270M: its tokens against SentencePiece, its logits against transformers.

Run: python benchmarks/gemma3_270m.py [--tokens 48] [--strings 2000]. Fetches the alias `gemma3-270m` (227 MiB, Gemma
terms) where it is not cached. Prints one JSON document; exits 1 when a token differs or the relative error of the
logits exceeds 1e-4. The tokens are compared where the `sentencepiece` and `protobuf` packages are installed, and
unknown elsewhere.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twofold.engine.text import Tokenizer
from twofold.engine.torch_ops import run_model
from twofold.engine.weights import open_weights
from twofold.profiles.figures import Figure, measured, unknown
from twofold.profiles.readers.gguf_header import read_gguf_header
from twofold.profiles.readers.local import read_config, read_gguf_spec
from twofold.profiles.sources import fetch, resolve

SCHEMA_VERSION = 1
LOGIT_BAR = 1e-4
TEXT = "The capital of France is Paris. The capital of Germany is Berlin. def double(n):\n    return 2 * n\n"
FIXED = (
    "", " ", "  two  spaces\n\n\nx", "<start_of_turn>user\nhi<end_of_turn>", "<0x0A>", "<bos>", "▁▁a ▁b", "tab\tx",
    "<table></table>[multimodal]", "日本語のテキスト 🎉👩\u200d👩\u200d👧", "a\x00b\x01\x7f", "\r\n\r\n",
    "e\u0301ﷺ\u3000", "\U0010ffff", "a" * 1000,
)  # fmt: skip
POOLS = (
    "abc \n", "aA-=_ ", "▁ x\n", "0123456789.,", "日本語テキスト漢字仮名。", "🎉👩\u200d👧é", "\x00\x01\t\r\n\x7f",
    "<>/startofturn_ ", "йцукен ", "한국어 ", "ابجد ", "theofanding ", "-", "=", "*#_~`",
)  # fmt: skip


def sentencepiece_model(path: Path) -> Any:
    """A SentencePiece processor over the file's pieces, scores and types, with Gemma's normaliser: none but spaces."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    fields = read_gguf_header(path, keep_arrays=True).fields
    proto = sentencepiece_model_pb2.ModelProto()
    columns = (fields[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "token_type"))
    for text, score, kind in zip(*columns, strict=True):
        piece = proto.pieces.add()
        piece.piece, piece.score, piece.type = text.replace(" ", "▁") if kind == 4 else text, score, kind
    proto.pieces[fields["tokenizer.ggml.unknown_token_id"]].type = 2
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    trainer.model_type, trainer.byte_fallback = 2, True
    for role in ("bos", "eos"):
        setattr(trainer, f"{role}_id", fields[f"tokenizer.ggml.{role}_token_id"])
    trainer.unk_id, trainer.pad_id = (fields[f"tokenizer.ggml.{role}_token_id"] for role in ("unknown", "padding"))
    normalizer.name, normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces = "identity", False, False
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


def strings(count: int) -> list[str]:
    """Fixed hostile strings and random ones: runs of one alphabet, any scalar values."""
    rng = random.Random(1)
    found = list(FIXED)
    for _ in range(count):
        pool = rng.choice(POOLS)
        found.append("".join(rng.choices(pool, k=rng.randint(1, 60))))
        ranges = ((1, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))
        found.append("".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 30))))
    return found


def different_tokens(path: Path, tokenizer: Tokenizer, count: int) -> Figure:
    """How many strings become other tokens than SentencePiece makes of them."""
    try:
        reference = sentencepiece_model(path)
    except ImportError as error:
        return unknown("strings", f"{error}: pip install sentencepiece protobuf")
    texts = strings(count)
    wrong = sum(reference.encode(text) != tokenizer.encode(text) for text in texts)
    return measured(wrong, "strings", "tokens against sentencepiece over the same pieces", n=len(texts))


def logits_error(path: Path, tokens: list[int]) -> tuple[Figure, str]:
    """The relative error of the torch executor's logits, and the greedy next piece."""
    import transformers
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding, Gemma3TextScaledWordEmbedding

    config = transformers.Gemma3TextConfig(**{k: v for k, v in read_config(path).items() if k != "model_type"})
    with torch.device("meta"):
        model = transformers.Gemma3ForCausalLM._from_config(config, attn_implementation="eager").eval()
    model.model.rotary_emb = Gemma3RotaryEmbedding(config)
    with open_weights(path) as source:
        source.check_complete(read_gguf_spec(path))
        weights = {name: torch.from_numpy(np.array(source.tensor(name))) for name in source.names()}
    embedding = Gemma3TextScaledWordEmbedding(1, 1, 0, embed_scale=config.hidden_size**0.5)
    model.model.embed_tokens.embed_scale = embedding.embed_scale
    stored = {name: value - 1 if name.endswith("norm.weight") else value for name, value in weights.items()}
    model.load_state_dict(stored, strict=False, assign=True)
    model.tie_weights()
    ids = torch.tensor(tokens)
    with torch.no_grad():
        expected = model(ids[None]).logits[0]
    found = run_model(read_gguf_spec(path), ids, weights.__getitem__)
    error = float((found - expected).norm() / expected.norm())
    figure = measured(error, "1", "norm of the difference to transformers' logits over theirs", n=len(tokens))
    return figure, str(int(found[-1].argmax()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=48, help="how long the text for the logits is")
    parser.add_argument("--strings", type=int, default=2000, help="random strings of each kind for the tokens")
    options = parser.parse_args()
    path = fetch(resolve("gemma3-270m"))
    tokenizer = Tokenizer.load(path)
    differing = different_tokens(path, tokenizer, options.strings)
    tokens = [*tokenizer.prefix_ids, *tokenizer.encode(TEXT)][: options.tokens]
    error, best = logits_error(path, tokens)
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": path.name,
        "different_tokens": differing.to_json(),
        "logits_relative_error": error.to_json(),
        "continues": {"text": tokenizer.decode(tokens), "next": tokenizer.decode([int(best)])},
    }
    print(json.dumps(document, indent=2, ensure_ascii=False))
    wrong = differing.is_known and differing.number > 0
    return 1 if wrong or error.number > LOGIT_BAR else 0


if __name__ == "__main__":
    raise SystemExit(main())
