"""`fit --html`: one file that needs nothing else, says where every number comes from, and says nothing private."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.cli.html.page import page_of
from twofold.cli.html.private import Cleaner
from twofold.cli.html.write import render
from twofold.planner.machine import HostBudget, MachineBudget
from twofold.planner.own_runs import Observed
from twofold.planner.report import FitReport
from twofold.planner.request import Request
from twofold.planner.verdict import fit
from twofold.profiles.export import document_of, to_bytes
from twofold.profiles.figures import measured
from twofold.profiles.readers.shipped import shipped_spec

GEMMA = ("google/gemma-4-31B-it", "--card", "RTX 4090", "--ctx", "32K")
CASES = [
    (GEMMA, 0),
    ((*GEMMA, "--ram", "64", "--ram-gb-s", "36", "--cpu", "avx512"), 0),
    (("google/gemma-4-31B-it", "--card", "3060 12gb", "--ctx", "128K"), 4),
    (("Qwen/Qwen3.8-27B", "--card", "RTX 5090"), 0),
    (("Qwen/Qwen3-8B", "--ram", "64", "--ram-gb-s", "40", "--cpu", "avx2"), 0),
    (("smollm2",), 0),
]
Made = Callable[..., str]
Parse = Callable[[str], Any]


@pytest.mark.parametrize("arguments, code", CASES)
def test_it_needs_nothing_and_every_number_says_where_it_comes_from(
    made: Made, parse: Parse, arguments: tuple[str, ...], code: int
) -> None:
    root = parse(made(*arguments, code=code))
    _is_self_contained(root)
    rows = {
        one.attributes["id"]: one
        for one in root.all()
        if one.attributes.get("id", "").startswith("p") and one.tag == "tr"
    }
    figures = [one for one in root.all() if "figure" in one.attributes.get("class", "").split()]
    assert len(figures) > 30
    for figure in figures:
        links = [one for one in figure.all() if one.tag == "a"]
        assert len(links) == 1
        row = rows[links[0].attributes["href"].removeprefix("#")]
        cells = [child.text.strip() for child in row.children]
        assert cells[4] == figure.attributes["data-source"]
        assert cells[4] in ("measured", "reported", "reasoned", "unknown")
        assert len(cells[5]) > 2, "a formula, a source or a reason"
        assert cells[2].split()[0] in figure.text, "the number and its row agree"


def _is_self_contained(root: Any) -> None:
    tags = {one.tag for one in root.all()}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "base", "form"}
    for one in root.all():
        for name, value in one.attributes.items():
            assert not name.startswith("on"), name
            assert not re.match(r"\s*(?:https?:)?//", value), (one.tag, name, value)
            if name in ("href", "src", "action", "data", "poster", "srcset", "xlink:href"):
                assert value.startswith("#"), value
    style = next(one for one in root.all() if one.tag == "style").own_text
    assert "url(" not in style and "@import" not in style and "prefers-color-scheme: dark" in style
    assert "@media print" in style


def test_it_says_what_the_terminal_says(made: Made, parse: Parse, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("google/gemma-4-31B-it", "--card", "3060 12gb", "--ctx", "128K")
    root = parse(made(*asked, code=4))
    capsys.readouterr()
    assert run_app(lambda: build_app()(["fit", *asked, "--trials", "0", "--format", "json"])) == 4
    found = json.loads(capsys.readouterr().out)
    shown = re.sub(r"\s+", " ", root.text)
    assert "DOES NOT FIT" in shown and "RTX 3060 12GB" in shown
    for command in [near["command"] for near in found["nearest"]]:
        assert command.replace(" --trials 0", "") in shown
    for choice in found["choices"]:
        assert choice["command"] in shown or not choice["runnable"]
    assert f"{found['shortfall_mib']['value']:,.0f} MiB" in shown
    assert "--html report.html" in shown, "the command that made it, with the file's name alone"
    for heading in ("Memory", "Speed against context", "Speed against quality and context", "What would serve"):
        assert heading in [one.text.strip() for one in root.all() if one.tag == "h2"]


def test_pictures_have_words(made: Made, parse: Parse) -> None:
    root = parse(made(*GEMMA))
    pictures = [one for one in root.all() if one.tag == "svg"]
    assert len(pictures) >= 6
    for picture in pictures:
        hidden = picture.attributes.get("aria-hidden") == "true"
        assert hidden or (picture.attributes["role"] == "img" and len(picture.attributes["aria-label"]) > 10)
        for one in picture.all():
            numbers = [one.attributes.get(name, "0") for name in ("x", "y", "width", "height", "x1", "y1")]
            assert all(-1 <= float(number) <= 1001 for number in numbers), one.attributes
    assert {one.attributes.get("lang") for one in root.all() if one.tag == "html"} == {"en"}
    heads = [int(one.tag[1]) for one in root.all() if one.tag in ("h1", "h2", "h3")]
    assert heads[0] == 1 and heads.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(heads))


def test_a_bars_parts_add_up(made: Made, parse: Parse) -> None:
    root = parse(made(*GEMMA))
    bar = next(one for one in root.all() if one.attributes.get("class") == "bar")
    parts = [one for one in bar.children if one.attributes["class"].startswith("k-")]
    end = 0.0
    for part in parts:
        assert float(part.attributes["x"]) == pytest.approx(end, abs=0.05)
        end += float(part.attributes["width"])
    whisker = next(one for one in bar.children if one.attributes["class"] == "whisker")
    low = float(whisker.attributes["x"])
    assert low < end < low + float(whisker.attributes["width"])
    limit = next(one for one in bar.children if one.attributes["class"] == "limit")
    assert end < float(limit.attributes["x"])


def _hostile_folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 100, "max_position_embeddings": 8192,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", ["<script>alert(1)<", "a\"onload='x' b&amp;", "{{ 7*7 }}{% x %}", "</title><b>"])
def test_hostile_names_stay_text(made: Made, parse: Parse, tmp_path: Path, name: str) -> None:
    folder = _hostile_folder(tmp_path, name.replace("/", "∕"))
    text = made(str(folder), "--ram", "64", "--ram-gb-s", "40", "--cpu", "avx2")
    root = parse(text)
    assert "script" not in {one.tag for one in root.all()}
    assert not any(key.startswith("on") for one in root.all() for key in one.attributes)
    heading = next(one for one in root.all() if one.tag == "h1")
    assert folder.name in heading.own_text
    assert "49" not in heading.text


def test_nothing_private_is_in_it(
    made: Made, parse: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2_gguf: Path
) -> None:
    from twofold.probes import probe

    home = tmp_path / "zaphodbeeblebrox"
    home.mkdir()
    for variable, value in (("USER", "zaphodbeeblebrox"), ("HOME", str(home)), ("HOSTNAME", "heartofgold")):
        monkeypatch.setenv(variable, value)
    model = home / "zaphodbeeblebrox-best model.gguf"
    shutil.copy(smollm2_gguf, model)
    profile = home / "heartofgold.json"
    profile.write_bytes(to_bytes(document_of(probe(bandwidth=False))))
    text = made(str(model), "--profile", str(profile), "--ram", "64", "--ram-gb-s", "40")
    for word in ("zaphod", "heartofgold", str(tmp_path), "/home", "/tmp", os.sep + "root"):
        assert word not in text.lower(), word
    shown = re.sub(r"\s+", " ", parse(text).text)
    assert "…-best model.gguf" in shown
    assert "Names of the user or machine were replaced" in shown


def test_the_cleaner_leaves_what_is_no_path_alone() -> None:
    cleaner = Cleaner(["/data/my models/x.gguf"], ["alice"])
    for text in ("tok/s", "google/gemma-4-31B-it", "base and cache bytes / bandwidth", "39/60 layers", "-hf a/b:Q8_0"):
        assert cleaner.text(text) == text
    assert not cleaner.hidden
    assert cleaner.text("llama-server -m '/data/my models/x.gguf' -c 1") == "llama-server -m x.gguf -c 1"
    assert cleaner.text("seen at /etc/secret/file.json (Alice)") == "seen at file.json (…)"
    assert cleaner.text("malice stays") == "malice stays" and cleaner.hidden
    assert cleaner.text("postgresql://bob:pw@host/db") == "postgresql://…@host/db"
    assert cleaner.clean({"a": ["~/x/y", 3, None]}) == {"a": ["y", 3, None]}


BAD_PLACES = [
    ("missing/folder/report.html", 2, "the folder of --html is not there"),
    (".", 2, "--html names a folder"),
    ("file/report.html", 2, "the folder of --html is not there"),
]


@pytest.mark.parametrize("place, code, words", BAD_PLACES)
def test_a_place_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, place: str, code: int, words: str
) -> None:
    (tmp_path / "file").write_text("x")
    assert run_app(lambda: build_app()(["fit", *GEMMA, "--html", str(tmp_path / place)])) == code
    shown = capsys.readouterr()
    assert words in shown.err and "hint: " in shown.err and shown.out == "" and "Traceback" not in shown.err


def test_a_folder_that_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("/proc/self")
    if not folder.is_dir():
        pytest.skip("no /proc here")
    assert run_app(lambda: build_app()(["fit", *GEMMA, "--trials", "0", "--html", str(folder / "x.html")])) in (1, 2)
    shown = capsys.readouterr().err
    assert "error: " in shown and "/proc/self" in shown and "Traceback" not in shown


def test_an_older_report_stays_whole_until_the_new_one_is_there(made: Made, tmp_path: Path) -> None:
    first = made(*GEMMA)
    (tmp_path / "report.html").chmod(0o600)
    assert made(*GEMMA[:3], "--ctx", "16K") != first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_nothing_but_an_older_report_is_replaced(
    made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made(*GEMMA)
    capsys.readouterr()
    other = tmp_path / "thesis.html"
    other.write_text("<!DOCTYPE html>\n<p>twofold</p>")
    (tmp_path / "to-other").symlink_to(other)
    (tmp_path / "to-report").symlink_to(tmp_path / "report.html")
    (tmp_path / "to-nothing").symlink_to(tmp_path / "new.html")
    (tmp_path / "to-nowhere").symlink_to(tmp_path / "missing" / "new.html")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "empty.html").touch()
    os.mkfifo(tmp_path / "pipe")
    refused = {
        "thesis.html": "is no report",
        "to-other": "is no report",
        "to-nowhere": "is not there",
        "loop": "cannot be used",
        "pipe": "names no file",
        "x" * 300: "cannot be used",
    }
    for name, words in refused.items():
        assert run_app(lambda at=name: build_app()(["fit", *GEMMA, "--html", str(tmp_path / at)])) == 2, name
        shown = capsys.readouterr()
        assert words in shown.err and "hint: " in shown.err and shown.out == "", name
    assert other.read_text().endswith("<p>twofold</p>")
    for name in ("to-report", "to-nothing", "empty.html"):
        command = ["fit", *GEMMA, "--trials", "0", "--html", str(tmp_path / name)]
        assert run_app(lambda words=command: build_app()(words)) == 0, name
        assert "generator" in (tmp_path / name).read_text("utf-8")
    assert (tmp_path / "to-report").is_symlink() and (tmp_path / "new.html").is_file()


def test_it_is_about_one_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in ([], ["Qwen/Qwen3.8-27B", "--engine", "llama.cpp", "--card", "RTX 4090"]):
        assert run_app(lambda words=arguments: build_app()(["fit", *words, "--html", str(tmp_path / "x.html")])) == 2
        assert "--html" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_json_and_the_file_go_together(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert shipped_spec(GEMMA[0]) is not None
    made(*GEMMA, "--format", "json")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"] == "fits"
    assert "wrote " in shown.err


def test_what_own_sessions_reached_is_shown_as_measured() -> None:
    spec = shipped_spec("Qwen/Qwen3-8B")
    assert spec is not None
    free, speed, cores = measured(64000, "MiB", "here"), measured(40.0, "GB/s", "here"), measured(8, "cores", "here")
    host = HostBudget(free, speed, "avx2", cores)
    report = fit(spec, MachineBudget("this machine", "this machine", (), host), Request())
    speed = measured(5.5, "tok/s", "3 own sessions", n=3, spread=0.2)
    seen = Observed(speed, None, None, measured(8000.0, "MiB", "3 own sessions", n=3), "3 own sessions of this build")
    page = page_of(replace(report, evaluation=replace(report.evaluation, observed=seen)), "twofold fit", "0", "today")
    shown = {one["name"]: one["value"] for one in page["key"]}
    assert shown["seen in sessions: decode"]["source"] == "measured"
    assert shown["seen in sessions: decode"]["range"] == "± 0.10, n = 3"
    assert shown["seen in sessions: peak"]["text"] == "8,000 MiB"
    assert shown["seen in sessions: decode"] in page["provenance"]
    assert {row["source"] for row in page["provenance"]} >= {"measured", "reasoned"}


@pytest.fixture(scope="module")
def small_report() -> FitReport:
    spec = shipped_spec("HuggingFaceTB/SmolLM2-135M")
    assert spec is not None
    host = HostBudget(measured(9000, "MiB", "here"), measured(40.0, "GB/s", "here"), "avx2", measured(8, "cores", "x"))
    return fit(spec, MachineBudget("this machine", "this machine", (), host), Request())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(), min_size=1, max_size=40) | st.sampled_from(["</style><script>", "<!--", "]]>", "&lt"])
)
def test_any_text_stays_text(small_report: FitReport, parse: Parse, text: str) -> None:
    hostile = replace(small_report, model=text, facts_source=text, notes=(text,), runnable=False, runnable_reason=text)
    page = render(page_of(hostile, f"twofold fit {text}", "0", "today"), [], ["alice"])
    page.encode("utf-8")
    root = parse(page)
    assert not {one.tag for one in root.all()} & {"script", "b", "img", "x"}
    assert sum(one.tag == "style" for one in root.all()) == 1
    said = next(one for one in root.all() if one.tag == "h1").own_text
    cleaned = Cleaner([], ["alice"]).text(text)
    assert re.sub(r"\s+", " ", said).strip() == re.sub(r"\s+", " ", cleaned).strip()
    assert not any("\ud800" <= char <= "\udfff" or (char < " " and char not in "\t\n") for char in page)
