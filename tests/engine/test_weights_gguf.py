"""GGUF weights: the real default model speaks through transformers; damaged files are refused before any value is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twofold.engine.weights import open_weights
from twofold.profiles.errors import TwofoldError
from twofold.profiles.sources import read_spec, resolve


@pytest.mark.slow
def test_smollm2_dequantised_continues_sensibly_in_transformers(smollm2_gguf: Path) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    from twofold.profiles.readers.gguf_header import read_gguf_header
    from twofold.profiles.readers.local import read_config

    model = LlamaForCausalLM(LlamaConfig(**read_config(smollm2_gguf)))
    with open_weights(smollm2_gguf) as source:
        source.check_complete(read_spec(resolve(str(smollm2_gguf))))
        state = {name: torch.from_numpy(source.tensor(name)) for name in source.names()}
        assert np.array_equal(source.tensor("lm_head.weight"), source.tensor("model.embed_tokens.weight"))
        assert source.dtype_note() == "Q4_1/Q8_0 dequantised"
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert missing == ["lm_head.weight"]
    fields = read_gguf_header(smollm2_gguf, keep_arrays=True).fields
    vocab = {token: index for index, token in enumerate(fields["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    prompt = torch.tensor([tokenizer.encode("The capital of France is").ids])
    with torch.no_grad():
        generated = model.generate(prompt, max_new_tokens=8, do_sample=False)
    assert "Paris" in tokenizer.decode(generated[0].tolist())
