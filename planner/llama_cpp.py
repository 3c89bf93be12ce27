"""What llama.cpp would need for the same model: the honest alternative.

VRAM = weights on the card + what the run decides (`planner.llama_run`) + a constant, whose range comes from reported
peaks of llama.cpp on CUDA. The embedding stays on the host; a tied one is there and on the card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from twofold.planner import codecs
from twofold.planner.gguf_files import gguf_name
from twofold.planner.llama_run import LlamaRun, run_terms
from twofold.planner.machine import CardBudget, HostBudget
from twofold.planner.memory import CUDA_CONTEXT_MIB
from twofold.planner.plan import KvType
from twofold.planner.rates import GPU_EFFICIENCY
from twofold.profiles.figures import Figure, reasoned, unknown
from twofold.profiles.model_spec import LayerSpec, LinearSpec, ModelSpec
from twofold.profiles.units import MIB

Quant = Literal["Q8_0", "Q6_K", "Q4_K_M"]
QUANTS: tuple[Quant, ...] = ("Q8_0", "Q6_K", "Q4_K_M")
# Files of one name differ by mixture and version.
WEIGHTS_SPREAD: dict[Quant, float] = {"Q8_0": 0.015, "Q6_K": 0.03, "Q4_K_M": 0.06}
# Decode with GGUF kernels reaches a larger share of the bandwidth than a 2-bit kernel does.
LLAMA_EFFICIENCY = (GPU_EFFICIENCY[0], 0.65, 0.85)
# Layers that are not on the card, against the host's read bandwidth. Measured on two cores with SmolLM2 at Q8_0: 20 of
# 48 GB/s with AVX-512 VNNI, 11 of 24 to 30 with AVX2; more cores and larger layers come near the wall.
LLAMA_HOST_EFFICIENCY = (0.4, 0.85, 0.97)


def _uses_more_bits(index: int, n_layers: int) -> bool:
    """Where a _M mixture raises V and down projections to 6 bits: the first and last eighth and every third between."""
    eighth = n_layers // 8
    return index < eighth or index >= 7 * n_layers // 8 or (index - eighth) % 3 == 2


def member_codec(member: LinearSpec, layer: LayerSpec, n_layers: int, quant: str) -> str:
    """The GGML type of one Linear in a file of `quant`."""
    if quant != "Q4_K_M":
        return quant
    raised = member.name.endswith(("v_proj", "down_proj")) and _uses_more_bits(layer.index, n_layers)
    return "Q6_K" if raised else "Q4_K"


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """Bytes on the card when all layers are, and bytes that stay on the host (the embedding).

    `idle` is the part of the card's that a token does not read: the experts that it does not use. `experts` are all
    experts' bytes by layer, where they are known.
    """

    card: int
    host: int
    per_layer: tuple[int, ...]
    idle: int = 0
    experts: tuple[int, ...] = ()


def llama_weights(spec: ModelSpec, quant: Quant) -> LlamaWeights:
    """Weight bytes of a GGUF of `spec` at `quant`, from block sizes."""
    per_layer, experts = [], []
    idle = 0
    for layer in spec.layers:
        total = 2 * codecs.dense_bytes(spec, layer)  # F32 in a GGUF
        of_experts = 0
        for group in layer.groups:
            for member in group.members:
                codec = member_codec(member, layer, spec.n_layers, quant)
                one = codecs.gguf_bytes(member.out_features, member.in_features, codec)
                total += one * member.copies
                of_experts += one * member.copies if member.copies > 1 else 0
                idle += round(one * member.copies * (1 - member.share_read(1)))
        per_layer.append(total)
        experts.append(of_experts)
    top = "Q6_K" if quant == "Q4_K_M" else quant
    head = codecs.gguf_bytes(spec.vocab_size, spec.hidden_size, top)
    table = codecs.gguf_bytes(spec.vocab_size, spec.hidden_size, "Q4_K" if quant == "Q4_K_M" else quant)
    embedding = head if spec.tie_embeddings else table
    embedding += spec.extra_embedding_weights * embedding // max(1, spec.vocab_size * spec.hidden_size)
    card = sum(per_layer) + head + codecs.norm_bytes(spec)
    return LlamaWeights(card, embedding, tuple(per_layer), idle, tuple(experts))


def _buffers(spec: ModelSpec, context_tokens: int, kv_type: KvType) -> int:
    """Cache, state, mask and dequantisation scratch of a plain run."""
    return sum(term.bytes for term in run_terms(spec, LlamaRun(context_tokens, kv_type)))


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to run the model with llama.cpp: what it needs, whether a card holds it whole, how fast, the command,
    and how to `make` a file that nothing says exists.
    """

    quant: str
    vram_mib: Figure
    ram_mib: Figure
    fits_card: bool | None
    fits_ram: bool | None
    layers_on_card: int | None
    n_layers: int
    tok_s: Figure
    command: str
    note: str
    make: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "engine": "llama.cpp",
            "quant": self.quant,
            "vram_mib": self.vram_mib.to_json(),
            "ram_mib": self.ram_mib.to_json(),
            "fits_card": self.fits_card,
            "fits_ram": self.fits_ram,
            "layers_on_card": self.layers_on_card,
            "n_layers": self.n_layers,
            "tok_s": self.tok_s.to_json(),
            "command": self.command,
            "note": self.note,
            "make_first": self.make,
        }


@dataclass(frozen=True, slots=True)
class _OffCard:
    """What does not stay on the card: bytes, those of them that a token reads, and how llama.cpp is told."""

    bytes: int
    read: float
    layers_on_card: int
    note: str
    flags: str


def _off_card(spec: ModelSpec, weights: LlamaWeights, buffers: int, need: float) -> _OffCard:
    """Enough to free `need` bytes: the experts of the first layers, which a token hardly reads, else whole layers."""
    n_layers = spec.n_layers
    if need <= 0:
        return _OffCard(0, 0.0, n_layers, "wholly in VRAM", " -ngl 99")
    if sum(weights.experts) >= need:
        moved = n = 0
        while moved < need:
            moved, n = moved + weights.experts[n], n + 1
        read = moved * (1 - weights.idle / sum(weights.experts))
        note = f"{n_layers - n} of {n_layers} layers' experts in VRAM, the others' from RAM"
        return _OffCard(moved, read, n_layers, note, f" -ngl 99 --n-cpu-moe {n}")
    spilled, layers = 0, n_layers
    per_layer = sorted(weights.per_layer)
    while spilled < need and layers > 0:
        layers -= 1
        spilled += per_layer[layers] + buffers // (2 * n_layers)
    read = min(spilled, weights.card) * (1 - weights.idle / max(1, weights.card))
    return _OffCard(
        spilled, read, layers, f"{layers} of {n_layers} layers in VRAM, the rest from RAM", f" -ngl {layers}"
    )


def _command(model_flag: str, context_tokens: int, kv_type: KvType, flags: str) -> str:
    return f"llama-server {model_flag} -c {context_tokens} -ctk {kv_type} -ctv {kv_type} -fa on{flags}"


def _speed(card_bytes: float, host_bytes: float, card: CardBudget | None, host: HostBudget | None) -> Figure:
    seconds = [0.0, 0.0, 0.0]
    for n_bytes, figure, efficiency, what in (
        (card_bytes, card.bandwidth_gb_s if card else None, LLAMA_EFFICIENCY, "the card's bandwidth"),
        (host_bytes, host.ram_read_gb_s if host else None, LLAMA_HOST_EFFICIENCY, "the RAM bandwidth"),
    ):
        if not n_bytes:
            continue
        if figure is None or not figure.is_known:
            return unknown("tok/s", f"{what} is unknown")
        seconds = [s + n_bytes / (figure.number * 1e9 * share) for s, share in zip(seconds, efficiency, strict=True)]
    slow, likely, fast = seconds
    return reasoned(
        round(1 / likely, 2),
        "tok/s",
        "weights that a token reads / bandwidth, no draft",
        low=round(1 / slow, 2),
        high=round(1 / fast, 2),
    )


def _fits_ram(ram: Figure, host: HostBudget | None, margin_mib: float) -> bool | None:
    """None where the host's memory is unknown."""
    if host is None or not host.available_mib.is_known:
        return None
    return ram.number <= host.available_mib.number - margin_mib


def alternative(
    spec: ModelSpec,
    quant: str,
    weights: LlamaWeights,
    spread: float,
    context_tokens: int,
    kv_type: KvType,
    card: CardBudget | None,
    host: HostBudget | None,
    margin_mib: float,
    flag: str,
) -> Alternative:
    """llama.cpp on `card` (all layers if they fit, else as many as do) or on the CPU."""
    buffers = _buffers(spec, context_tokens, kv_type)
    low, constant, high = CUDA_CONTEXT_MIB
    total_mib = (weights.card + buffers) / MIB
    by = f"{quant} blocks + {kv_type} cache + mask + {low:g} to {high:g} MiB"
    vram = reasoned(
        round(total_mib + constant, 1),
        "MiB",
        by,
        low=round(total_mib + low - spread * weights.card / MIB, 1),
        # Files often carry the draft head's tensors, which some builds load: at most eight bits a weight.
        high=round(total_mib + high + (spread * weights.card + spec.draft_head_weights * 34 / 32) / MIB, 1),
    )
    if card is None or not card.free_mib.is_known or card.unified:
        everything = weights.card + weights.host + buffers
        ram = reasoned(round(everything / MIB, 1), "MiB", f"{quant} blocks + {kv_type} cache, on the CPU")
        speed = _speed(0, weights.card - weights.idle, None, host)
        command = _command(flag, context_tokens, kv_type, " -ngl 0" if card is None else "")
        in_ram = _fits_ram(ram, host, margin_mib)
        note = "on the CPU" if in_ram is not False else "on the CPU: more than the free RAM"
        return Alternative(quant, vram, ram, None, in_ram, None, spec.n_layers, speed, command, note)
    free = card.free_mib.number
    fits = (vram.high or 0.0) <= free - margin_mib
    off = _off_card(spec, weights, buffers, 0.0 if fits else ((vram.high or 0.0) - (free - margin_mib)) * MIB)
    by = "embedding" + (" and what is off the card" if off.bytes else "")
    ram = reasoned(round((weights.host + off.bytes) / MIB, 1), "MiB", by)
    speed = _speed(max(0.0, weights.card - weights.idle - off.read), off.read, card, host)
    note, layers = off.note, off.layers_on_card
    command = _command(flag, context_tokens, kv_type, off.flags)
    in_ram = _fits_ram(ram, host, margin_mib)
    if in_ram is False:
        note += ": more than the free RAM"
    return Alternative(quant, vram, ram, fits, in_ram, layers, spec.n_layers, speed, command, note)


def alternatives(
    spec: ModelSpec,
    context_tokens: int,
    kv_type: KvType,
    card: CardBudget | None,
    host: HostBudget | None,
    margin_mib: float,
    repo: str | None = None,
    source_flag: str | None = None,
) -> tuple[Alternative, ...]:
    """Q8_0, Q6_K and Q4_K_M with llama.cpp; those wholly in VRAM first, then by quality.

    `source_flag` opens the GGUF file that the model is, where it is one.
    """
    every = []
    for quant in QUANTS:
        weights, spread = llama_weights(spec, quant), WEIGHTS_SPREAD[quant]
        name = gguf_name(spec, quant, repo, source_flag)
        one = alternative(spec, quant, weights, spread, context_tokens, kv_type, card, host, margin_mib, name.flag)
        every.append(replace(one, make=name.make))
    return tuple(sorted(every, key=lambda one: not one.fits_card))


def file_weights(spec: ModelSpec, tensors: Mapping[str, int]) -> LlamaWeights:
    """Where llama.cpp puts the tensors (name: bytes) of a GGUF file: blocks and head on the card, look-ups on the host.

    Blocks behind the model's last layer are a draft head, which is not loaded without being asked for.
    """
    per_layer = [0] * spec.n_layers
    card = host = 0
    for name, n_bytes in tensors.items():
        block = re.match(r"blk\.(\d+)\.", name)
        if block is not None:
            if int(block[1]) < spec.n_layers:
                per_layer[int(block[1])] += n_bytes
        elif name.startswith(("token_embd.", "per_layer_token_embd.")):
            host += n_bytes
        else:
            card += n_bytes
    if "output.weight" not in tensors:
        card += tensors.get("token_embd.weight", 0)  # tied: looked up on the host, multiplied on the card
    return LlamaWeights(sum(per_layer) + card, host, tuple(per_layer))


def as_it_is(
    spec: ModelSpec,
    file_bytes: int,
    flag: str,
    context_tokens: int,
    kv_type: KvType,
    card: CardBudget | None,
    host: HostBudget | None,
    margin_mib: float,
    tensors: Mapping[str, int] | None = None,
) -> Alternative:
    """A GGUF file as it is, with llama.cpp: its tensors (name: bytes) where its header was read, else the file's own
    size, less an untied embedding that stays on the host.
    """
    if tensors:
        exact = file_weights(spec, tensors)
        return alternative(spec, "as it is", exact, 0.0, context_tokens, kv_type, card, host, margin_mib, flag)
    table = codecs.embedding_bytes(spec) // 2
    share = table / max(1, table + sum(m.n_weights for g in spec.groups for m in g.members))
    on_host = int(file_bytes * share)
    on_card = file_bytes if spec.tie_embeddings else file_bytes - on_host
    per_layer = (on_card // max(1, spec.n_layers),) * spec.n_layers
    idle = int(on_card * (1 - spec.n_used_weights / max(1, sum(m.n_weights for g in spec.groups for m in g.members))))
    weights = LlamaWeights(on_card, on_host, per_layer, idle)
    return alternative(spec, "as it is", weights, 0.02, context_tokens, kv_type, card, host, margin_mib, flag)
