"""No exported byte, JSON or Markdown, names a person, a machine or a place, wherever such a value was planted."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.planner.timed import names
from twofold.profiles.errors import InvalidProfile, UnsafeToShare
from twofold.profiles.export import export_bytes, with_runs
from twofold.profiles.hardware import RUN_FIELDS_2, HardwareProfile, ObservedRun
from twofold.profiles.importing import parse_profile
from twofold.profiles.markdown import HEAD, markdown_bytes, markdown_lines
from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec
from twofold.profiles.own_observed import observed_runs
from twofold.profiles.session_store import SessionRecord

MACHINE: Any = json.loads((Path(__file__).parent / "data" / "machine.json").read_text("utf-8"))
WORDS = ("zaphod", "beeblebrox", "zaphod beeblebrox", "heartofgold", "heartofgold.magrathea.lan")
PLANTED = (
    "/home/zaphod", "/home/zaphod/models/a.gguf", "~/a.gguf", "~zaphod/x", r"C:\Users\Zaphod\a.gguf", "../secret/a",
    "file:///srv/models", "/mnt/disk7/m", "zaphod", "Zaphod Beeblebrox", "ZAPHOD_models", "heartofgold",
    "HeartOfGold.magrathea.lan", "GPU-9b36c24f-b9bc-1dfa-b6c7-1ea6b42c5b75", "9b36c24fb9bc1dfab6c71ea6b42c5b75",
    "MIG-9b36c24f-b9bc-1dfa-b6c7-1ea6b42c5b75", "00000000:01:00.0", "S/N: 4711", "serial 12", "1320220012345",
    "zaphods-7b", "myzaphodmodel", "Z\xe4phod", "z\u0430ph\u043ed", "beeblebroxes", "+49 171 1234567", "0171 1234567",
    "zaphod@magrathea.example", "192.168.7.17", "fe80::1ff:fe23:4567:890a", "00:1a:2b:3c:4d:5e",
)  # fmt: skip
BEFORE = ("", "RTX 3090 ", "org/", "x ", "(", "EPYC ", "Model-7B ")


def session(**changes: Any) -> SessionRecord:
    fields: dict[str, Any] = {
        "command": "bench", "ending": "end", "day": "2026-11-30", "machine": "a" * 32, "cpu": "AMD EPYC", "cores": 2,
        "checkpoint": "b" * 32, "model": "smollm2", "vocab_size": 49152, "n_parameters": 134515008,
        "weights_bytes": 203240180, "residual_bits": 6, "context_tokens": 8192, "k_type": "f16", "v_type": "q8_0",
        "draft_nodes": 4, "draft_depth": 2, "prefill_chunk": 64, "threads": 2, "isa": "avx2", "build": "fe36e40",
        "version": "0.1.0", "planned_mib": 508.7, "peak_mib": 264.1, "process_mib": 91.7, "filled_tokens": 82,
        "answers": 1, "checks": 40, "decode": {"tok_s": 38.2, "n": 5, "spread": 1.349, "tokens": 128},
        "prefill": {"tok_s": 312.5, "n": 4, "tokens": 512}, "tokens_per_check": 1.3, "first_token_s": 0.4,
    }  # fmt: skip
    return SessionRecord.model_validate_json(json.dumps(fields | changes))


def full_document() -> Any:
    """The machine of the fixture with a run of every field."""
    document = copy.deepcopy(MACHINE)
    (run,) = observed_runs([session()])
    document["schema_version"] = 2
    document["observed"].append(run.model_dump(mode="json"))
    document["observed"][-1] |= {
        "driver": {"value": "560.35.03", "unit": "", "source": "reported", "by": "NVML"},
        "power_cap_w": {"value": 350, "unit": "W", "source": "reported", "by": "NVML"},
    }
    return document


def _text_paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, str):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in _text_paths(item, (*path, key))]


PATHS = _text_paths(full_document())


def _planted(path: tuple[str | int, ...], text: str) -> Any:
    document = full_document()
    here = document
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = text
    return document


def _assert_clean(data: bytes, secret: str) -> None:
    text = data.decode("utf-8").casefold()
    assert secret.casefold() not in text
    for word in WORDS:
        assert word not in text


def test_every_field_of_a_run_is_in_the_document() -> None:
    assert set(RUN_FIELDS_2) == set(full_document()["observed"][-1]) - set(MACHINE["observed"][0])


@given(path=st.sampled_from(PATHS), secret=st.sampled_from(PLANTED), before=st.sampled_from(BEFORE))
def test_planted_in_any_text_it_leaves_by_no_way(path: tuple[str | int, ...], secret: str, before: str) -> None:
    try:
        profile = HardwareProfile.model_validate_json(json.dumps(_planted(path, before + secret)))
    except ValueError:
        return  # the schema has no place for it
    for export in (export_bytes, markdown_bytes):
        try:
            data = export(profile, words=WORDS)
        except (UnsafeToShare, InvalidProfile):
            continue
        _assert_clean(data, secret)


TEXTS_OF_A_SESSION = ("model", "cpu", "isa", "build", "version")


@given(
    field=st.sampled_from(TEXTS_OF_A_SESSION),
    secret=st.sampled_from(PLANTED),
    before=st.sampled_from(BEFORE),
    after=st.sampled_from(("", "/a.gguf", " (7B)", "-7B")),
)
def test_a_sessions_texts_leave_redacted_or_not_at_all(field: str, secret: str, before: str, after: str) -> None:
    """A run that names somebody is left out; the others are exported."""
    planted = session(**{field: before + secret + after})
    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    found, left_out = with_runs(profile, observed_runs([session(), planted]), words=WORDS)
    assert len(found.observed) + left_out >= 2
    assert any(run.model == "smollm2" for run in found.observed)
    for data in (export_bytes(found, words=WORDS), markdown_bytes(found, words=WORDS)):
        _assert_clean(data, secret)
        assert b"a" * 32 not in data and b"b" * 32 not in data  # machine and checkpoint


@given(st.text(max_size=60))
def test_whatever_a_model_is_called_the_export_can_be_imported(name: str) -> None:
    from twofold.profiles.session_store import model_name

    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    found, _ = with_runs(profile, observed_runs([session(model=model_name(name))]), words=WORDS)
    assert parse_profile(export_bytes(found, words=WORDS), "the export") == found
    lines = markdown_bytes(found, words=WORDS).decode("utf-8").split("\n")
    columns = {line.count("|") for line in lines if line.startswith("| ") and "f16" in line}
    assert columns <= {13}


def test_a_run_of_a_private_name_is_left_out_unless_allowed() -> None:
    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    runs = observed_runs([session(model="zaphod/own-7B"), session()])
    found, left_out = with_runs(profile, runs, words=WORDS)
    assert (len(found.observed), left_out) == (2, 1)
    found, left_out = with_runs(profile, runs, words=WORDS, allowed=["zaphod"])
    assert (len(found.observed), left_out) == (3, 0)
    assert b"zaphod/own-7B" in export_bytes(found, words=WORDS, allowed=["zaphod"])


def test_versions_an_older_file_stays_as_it_is_and_a_newer_field_needs_the_newer_version() -> None:
    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    assert export_bytes(profile, words=()) == (Path(__file__).parent / "data" / "machine.json").read_bytes()
    found, _ = with_runs(profile, observed_runs([session()]), words=())
    document = json.loads(export_bytes(found, words=()))
    assert document["schema_version"] == 2 and len(document["observed"]) == 2
    assert "v_type" not in document["observed"][0]
    assert parse_profile(json.dumps(document).encode(), "x") == found
    with pytest.raises(InvalidProfile, match="not valid") as refused:
        parse_profile(json.dumps(document | {"schema_version": 1}).encode(), "x")
    assert refused.value.needed is not None and "schema_version 2" in refused.value.needed


def test_kernels_of_other_activations_need_the_newer_version_and_say_so() -> None:
    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    other = profile.kernels[0].model_copy(update={"activations": "int8"})
    mixed = profile.model_copy(update={"kernels": (*profile.kernels, other)})
    found, _ = with_runs(mixed, (), words=())
    document = json.loads(export_bytes(found, words=()))
    assert document["schema_version"] == 2
    assert [one.get("activations") for one in document["kernels"]] == [None] * len(profile.kernels) + ["int8"]
    assert parse_profile(json.dumps(document).encode(), "x") == found
    assert "split_linear, int8 activations" in markdown_bytes(found, words=()).decode()
    with pytest.raises(InvalidProfile, match="not valid"):
        parse_profile(json.dumps(document | {"schema_version": 1}).encode(), "x")


_COUNTS, _WIDTHS = st.integers(1, 512), st.integers(1, 16384)


@given(
    counts=st.tuples(_COUNTS, _COUNTS),
    widths=st.tuples(_WIDTHS, _WIDTHS),
    outputs=st.lists(st.integers(1, 300_000), min_size=1, max_size=4),
    context=st.integers(1, 10_000_000),
)
def test_whatever_kernels_were_timed_the_export_can_be_imported(
    counts: tuple[int, int], widths: tuple[int, int], outputs: list[int], context: int
) -> None:
    group = LinearGroup("g", tuple(LinearSpec(f"l{i}", widths[0], n) for i, n in enumerate(outputs)))
    layer = LayerSpec(0, "growing", (group,), *counts, *widths)
    spec = ModelSpec("m", "llama", (layer,), group, 1, 1, 1, False, 1e-5, "silu", "x")
    shapes = {
        names.LINEAR: names.linear_shape(group),
        names.ATTENTION: names.attention_shape(names.attention_heads(layer), context),
        names.LAYER_ROWS: names.row_values(spec),
        names.CHOOSE: str(group.out_features),
        names.STEP: names.FIXED,
    }
    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    kernels = tuple(profile.kernels[0].model_copy(update={"op": op, "shape": shape}) for op, shape in shapes.items())
    found = profile.model_copy(update={"kernels": kernels})
    assert parse_profile(export_bytes(found, words=WORDS), "x") == found
    assert f"{names.attention_heads(layer)} @ {context} |" in markdown_bytes(found, words=WORDS).decode()


@pytest.mark.parametrize(
    "shape",
    ["zaphod@magrathea.example", "9/3x64+64@magrathea", "9/3x64+64@128.example", "z9/3x64+64@128", "9/3x64+64@128 a@b",
     "64@128", "9/3x64+491711234567@128", "9/3x64+64@1320220012345"],
)  # fmt: skip
def test_what_only_looks_like_the_shape_of_a_kernel_does_not_leave(shape: str) -> None:
    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    timing = profile.kernels[0].model_copy(update={"op": names.ATTENTION, "shape": shape})
    for export in (export_bytes, markdown_bytes):
        with pytest.raises(UnsafeToShare, match=r"kernels\[0\]\.shape"):
            export(profile.model_copy(update={"kernels": (timing,)}), words=WORDS)


def test_sessions_under_other_activations_are_runs_of_their_own() -> None:
    usual, other = observed_runs([session(), session(activations="int8"), session()])[::-1]
    assert (usual.activations, other.activations) == ("int16", "int8")
    document = full_document()
    document["observed"][-1]["activations"] = "int8"
    rows = markdown_lines(HardwareProfile.model_validate_json(json.dumps(document)))
    assert any("residual, int8 activations" in row for row in rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"activations": "int4"}, {"threads": 0}, {"threads": "2"},
        {"first_token_s": {"value": 1, "unit": "h", "source": "measured", "by": "x"}},
        {"device": "tpu"}, {"filled_tokens": -1}, {"observed_on": "12:30"}, {"isa": "a\x1b[2J"}, {"path": "x"},
        {"prefill_tok_s": {"value": 1e300, "unit": "tok/s", "source": "measured", "by": "x"}},
    ],
)  # fmt: skip
def test_a_run_out_of_bounds_is_refused(changes: dict[str, Any]) -> None:
    document = full_document()
    document["observed"][-1] |= changes
    with pytest.raises(InvalidProfile):
        parse_profile(json.dumps(document).encode(), "x")


def test_sessions_of_one_setting_become_one_run() -> None:
    fast, slow = session(decode={"tok_s": 40.0}, peak_mib=300.0), session(decode={"tok_s": 30.0}, peak_mib=280.0)
    (run, other) = observed_runs([session(context_tokens=512), fast, slow])
    assert (run.context_tokens, other.context_tokens) == (512, 8192)
    assert (other.decode_tok_s.number, other.decode_tok_s.n, other.decode_tok_s.spread) == (35.0, 2, 5.0)
    assert (other.memory_peak_mib.number, other.memory_peak_mib.n) == (300.0, 2)
    (nothing,) = observed_runs([session(decode=None, prefill=None, peak_mib=None, process_mib=None)])
    assert not nothing.decode_tok_s.is_known and not nothing.memory_peak_mib.is_known and nothing.prefill_tok_s is None


def test_sessions_with_other_lookups_are_runs_of_their_own() -> None:
    plain, looked_up = observed_runs([session(), session(lookup_nodes=8)])
    assert (plain.lookup_nodes, looked_up.lookup_nodes) == (None, 8)
    (alone,) = observed_runs([session(draft_nodes=0, draft_depth=0, lookup_nodes=2)])
    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    table = markdown_bytes(with_runs(profile, (looked_up, alone), words=())[0], words=()).decode("utf-8")
    assert "| tree of 4, 2 deep; up to 8 looked up |" in table and "| up to 2 looked up |" in table


def test_the_table_speaks_llama_bench() -> None:
    profile = HardwareProfile.model_validate_json(json.dumps(MACHINE))
    found, _ = with_runs(profile, observed_runs([session(), session(command="chat")]), words=())
    text = markdown_bytes(found, words=()).decode("utf-8")
    assert text.startswith(f"{HEAD}NVIDIA GeForce RTX 3090, ")
    columns = "model | size | params | backend | threads | type_k | type_v | draft | test | t/s | peak MiB | plan MiB"
    assert f"| {columns} |" in text
    model = "smollm2 2-bit base + 6-bit residual | 193.82 MiB | 134.52 M"
    head = f"| {model} | CPU avx2 | 2 | f16 | q8_0 | tree of 4, 2 deep |"
    assert f"{head} pp512 | 312.5 | 264 | 509 |" in text
    assert f"{head} tg128 | 38.20 ± 1.00 | 264 | 509 |" in text
    assert f"{head} tg128 @ d82, chat |" in text
    assert "build: fe36e40 (0.1.0)" in text
    assert "| split_linear | 21504x5376 | 6 | 17 | avx2 | 12 | 812.50 ± 7.04 |" in text
    assert "| GPU 0 power cap | 350 W | reported |" in text
    assert "| RAM read, all cores | 52.00 ± 0.82 GB/s | measured |" in text


def test_text_from_others_is_no_markup() -> None:
    document = full_document()
    document["observed"][-1]["model"] = "a|b `c` <img src=x> [d](e)"
    lines = markdown_lines(HardwareProfile.model_validate_json(json.dumps(document)))
    row = next(line for line in lines if "a&#124;b" in line)
    assert not set("`<>[]") & set(row) and row.count("|") == 13


def test_an_observed_run_needs_none_of_the_new_fields() -> None:
    run = ObservedRun.model_validate_json(json.dumps(MACHINE["observed"][0]))
    assert all(getattr(run, name) is None for name in RUN_FIELDS_2)
