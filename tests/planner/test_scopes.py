"""Bits per weight by scope, against what was counted in published headers and in the packed arrays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner.codecs import GROUP_SIZE
from twofold.planner.scopes import CODECS, bits_per_weight, codecs_for
from twofold.planner.trellis import LAYOUTS, RELEASE, trellis_bytes
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.shipped import shipped_ids

Shipped = Callable[[str], ModelSpec]
QWEN = "Qwen/Qwen3.8-27B"

# "Counting the bits" of the article on Qwen3.8-27B on 12 GB, read there from the headers of the published files.
MIRAI = {
    "trellis codes": (7_450_044_672, 24_350_556_160, 2.448),
    "with row scales and gains": (7_469_655_040, 24_350_556_160, 2.454),
    "and 2-bit embedding and 3-bit head": (8_285_137_920, 26_893_352_960, 2.465),
    "the whole package: codebooks, rotations, RoPE tables": (8_447_545_388, 26_895_998_464, 2.513),
    "runtime tapes in llama.cpp's file": (7_607_009_280, 24_326_963_200, 2.502),
}


def test_mirai_s_is_the_articles_table(shipped: Shipped) -> None:
    scopes = bits_per_weight(shipped(QWEN), "Mirai S")
    assert {one.what: (one.bytes, one.weights, round(one.bits, 3)) for one in scopes} == MIRAI


@pytest.mark.parametrize(
    ("layout", "columns", "row"),
    # Row bytes of the package, and bytes of a packet of the runtime, as documented for the format.
    [("V4T8", 5120, 1360), ("V4T8", 6144, 1632), ("V4T8", 17408, 4624), ("V2T6", 5120, 1922), ("V2T6", 6144, 2306),
     ("V2T6", 17408, 6530), ("V2T4", 5120, 1282), ("V2T4", 6144, 1538), ("V2T4", 17408, 4354)],
)  # fmt: skip
def test_rows_of_the_trellis(layout: str, columns: int, row: int) -> None:
    one = next(value for name, value in LAYOUTS.items() if name == layout)
    assert one.row_bytes(columns) == row
    packet = {"V4T8": columns // 64 * 17, "V2T6": columns // 128 * 50, "V2T4": columns // 64 * 18}
    assert one.tape_bytes(columns) == packet[layout]


def test_the_mixture_has_97_166_and_9_matrices() -> None:
    counts = {name: sum(role.get(name, 0) for role in RELEASE.values()) for name in LAYOUTS}
    assert counts == {"V2T6": 97, "V4T8": 166, "V2T4": 9}
    assert sum(counts.values()) == 272


def test_mirai_s_is_of_one_model(shipped: Shipped) -> None:
    assert "Mirai S" in codecs_for(shipped(QWEN))
    for repo in ("Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-27B", "google/gemma-4-31B-it"):
        assert "Mirai S" not in codecs_for(shipped(repo))
        with pytest.raises(ValueError, match="not released"):
            trellis_bytes(shipped(repo))


def test_the_ternary_file_is_the_published_one(shipped: Shipped) -> None:
    """5,935,527,936 bytes of trunk, head and embedding in the header: 1.765 bits; 402 tensors of 1.75."""
    scopes = bits_per_weight(shipped(QWEN), "PTQ1_0")
    assert (scopes[-1].bytes, round(scopes[-1].bits, 3)) == (5_935_527_936, 1.765)
    assert (scopes[2].weights, scopes[2].bits) == (26_869_760_000, 1.75)
    assert bits_per_weight(shipped(QWEN), "PQ2_0")[1].bits == 34 * 8 / 128


def test_a_block_of_trits_is_28_bytes_and_one_of_two_bits_34() -> None:
    from twofold.planner.ternary import ternary_row

    # The published example blocks of 128 weights, in hexadecimal.
    ptq = (
        "ac36043a1573489d88c06f27f8293b6522a75367b69fe1ecdb9f4c22"
        "24867d8cf8e83d49395da5ea9dbaddea3319e2950b90b7db0dd10038"
    )
    pq2 = (
        "4c220244194284a4412608526a461850214041a548a944a629986825a5a84a8196860038"
        "540a94a955aaa29298422025829498851505042a60a491482a91a50018254815"
    )
    assert ternary_row(256, "PTQ1_0") == len(bytes.fromhex(ptq))
    assert ternary_row(256, "PQ2_0") == len(bytes.fromhex(pq2))


def test_twofold_is_2_125_bits_in_vram_and_8_25_in_all(shipped: Shipped) -> None:
    """Seed: 2 bit-planes and one fp16 scale for 128 weights = 2.125; a 6-bit residual 6.125."""
    for repo in ("Qwen/Qwen3-8B", "google/gemma-4-31B-it", QWEN):
        spec = shipped(repo)
        scopes = bits_per_weight(spec, "twofold")
        assert scopes[0].bits == 2.0
        assert scopes[1].bits == 2 + 16 / GROUP_SIZE == 2.125
        assert scopes[3].bits == 8.25
        assert bits_per_weight(spec, "twofold", 7)[3].bits == 9.25


def test_gemma_4_31b_takes_7_78_gb_of_codes_in_vram(shipped: Shipped) -> None:
    assert round(bits_per_weight(shipped("google/gemma-4-31B-it"), "twofold")[1].bytes / 1e9, 2) == 7.78


def test_q8_0_is_8_5_bits_and_q6_k_6_5625(shipped: Shipped) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    assert bits_per_weight(spec, "Q8_0")[1].bits == 8.5
    assert bits_per_weight(spec, "Q6_K")[1].bits == 6.5625
    assert bits_per_weight(spec, "Q6_K")[0].bits == 6


@pytest.mark.parametrize("repo", shipped_ids())
def test_scopes_only_widen(shipped: Shipped, repo: str) -> None:
    spec = shipped(repo)
    assert set(codecs_for(spec)) >= {"twofold", "Q8_0", "Q6_K", "Q4_K_M"}
    for codec in codecs_for(spec):
        scopes = [one for one in bits_per_weight(spec, codec) if not one.what.startswith("runtime")]
        assert [one.bytes for one in scopes] == sorted(one.bytes for one in scopes), codec
        assert all(1 < one.bits < 20 for one in scopes), codec
        assert all(one.figure.source == "reasoned" for one in scopes)


def test_the_whole_checkpoint_is_what_the_planner_stores(shipped: Shipped) -> None:
    from twofold.planner.memory import checkpoint_bytes

    for repo in ("HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen3-8B", "Qwen/Qwen3.5-35B-A3B"):
        spec = shipped(repo)
        assert bits_per_weight(spec, "twofold")[-1].bytes == checkpoint_bytes(spec, 6)


def test_what_is_no_codec_is_refused(shipped: Shipped) -> None:
    assert "IQ9" not in CODECS
    with pytest.raises(ValueError, match="no codec 'IQ9'"):
        bits_per_weight(shipped(QWEN), "IQ9")
