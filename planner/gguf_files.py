"""Names of the GGUF files that llama.cpp would open: in a Hub repository or on disk, and how to make a missing one."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from twofold.profiles.model_spec import ModelSpec

_QUANT = re.compile(r"(?i)(?:^|[-_.])(?:i?q[1-8]_[a-z0-9_]+|tq[12]_0|mxfp4(?:_moe)?|bf16|fp?16|f32)(?=$|[-_.])")


@dataclass(frozen=True, slots=True)
class GgufName:
    """The option with which llama.cpp opens a file; how to make the file, where nothing says that it exists."""

    flag: str
    make: str | None = None


def holds_many(repo: str) -> bool:
    """Whether a repository may hold other quantisations: one that is named after a quantisation holds that alone."""
    return _QUANT.search(repo.split("/")[-1]) is None


def gguf_name(spec: ModelSpec, quant: str, repo: str | None, source_flag: str | None = None) -> GgufName:
    """`-hf REPO:QUANT`, or `-m FILE` with how to make it.

    Without a known repository the name of one follows a common convention and was not looked up; a model that has no
    Hub name, or is itself a GGUF file (`source_flag` opens it) of a repository with nothing else, has none.
    """
    name = spec.name.split("/")[-1]
    if repo is not None and not holds_many(repo):
        repo = None
    if repo is None and source_flag is None and "/" in spec.name:
        repo = f"unsloth/{name}-GGUF"
    if repo is not None:
        return GgufName(f"-hf {repo}:{quant}")
    file, half = (shlex.quote(f"{name}-{kind}.gguf") for kind in (quant, "F16"))
    if source_flag is not None:
        source = shlex.split(source_flag)[-1]
        return GgufName(f"-m {file}", f"llama-quantize --allow-requantize {shlex.quote(source)} {file} {quant}")
    steps = f"convert_hf_to_gguf.py FOLDER --outfile {half} (FOLDER: the original weights)"
    return GgufName(f"-m {file}", f"{steps}, then llama-quantize {half} {file} {quant}")
