"""The page in a real browser: it opens without scripts or network, fits wide and narrow windows, and is not empty."""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (Debian: apt-get install chromium)"),
]
Made = Callable[..., str]
GEMMA = ("google/gemma-4-31B-it", "--card", "RTX 4090", "--ctx", "32K")


MEASURE = """
const widths = {};
for (const size of [320, 360, 500, 768, 1280]) {
  const frame = document.createElement("iframe");
  frame.width = size; frame.height = 800; frame.style.border = 0; frame.srcdoc = REPORT;
  frame.onload = () => {
    const page = frame.contentDocument.documentElement;
    const pictures = [...page.querySelectorAll("svg.wide, svg.narrow")].filter(s => s.getBoundingClientRect().width);
    const figures = page.querySelectorAll(".figure").length;
    widths[size] = [page.scrollWidth, pictures.length, pictures[0].classList[0], figures];
    document.body.dataset.widths = JSON.stringify(widths);
  };
  document.body.append(frame);
}
"""


def _chromium(profile: Path, page: Path, *options: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", *options, page.as_uri()]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


def _pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of an 8-bit RGB(A) picture (PNG filters undone)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, head = 8, b"", b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        head, data = (body if kind == b"IHDR" else head), (data + body if kind == b"IDAT" else data)
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", head[:10])
    n = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw, rows, before = zlib.decompress(data), [], bytes(width * n)
    for y in range(height):
        line = bytearray(raw[y * (width * n + 1) : (y + 1) * (width * n + 1)])
        kind, row = line[0], line[1:]
        for i in range(len(row)):
            a, b = (row[i - n] if i >= n else 0), before[i]
            c = before[i - n] if i >= n else 0
            if kind == 4:
                p = a + b - c
                near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))
                row[i] = (row[i] + near[2]) & 255
            else:
                row[i] = (row[i] + (0, a, b, (a + b) // 2)[kind]) & 255
        rows.append(bytes(row))
        before = bytes(row)
    return width, height, rows


@pytest.mark.parametrize("width", [1100, 500])
def test_a_picture_of_it_is_not_empty(made: Made, tmp_path: Path, width: int) -> None:
    made(*GEMMA)
    picture = tmp_path / "picture.png"
    _chromium(tmp_path / "profile", tmp_path / "report.html", f"--window-size={width},300", f"--screenshot={picture}")
    found, height, rows = _pixels(picture.read_bytes())
    assert (found, height) == (width, 300)
    n = len(rows[0]) // width
    colours = {row[i : i + 3] for row in rows for i in range(0, len(row), n)}
    assert len(colours) > 50
    inked = sum(len(set(zip(*[iter(row)] * n, strict=True))) > 1 for row in rows)
    assert inked > height // 3, "text and boxes on many lines"


def test_no_part_is_wider_than_the_window(made: Made, tmp_path: Path) -> None:
    """Measured by a script in a page around the report; the report itself allows none, which is checked too."""
    text = made("google/gemma-4-31B-it", "--card", "3060 12gb", "--ctx", "128K", code=4)
    around = tmp_path / "around.html"
    report = json.dumps(text).replace("</", "<\\/")
    around.write_text(f"<!DOCTYPE html><body><script>const REPORT = {report};\n{MEASURE}</script></body>", "utf-8")
    seen = _chromium(tmp_path / "profile", around, "--dump-dom", "--virtual-time-budget=5000")
    match = re.search(r'data-widths="([^"]*)"', seen)
    assert match is not None, seen[-500:]
    widths = json.loads(html.unescape(match[1]))
    assert set(widths) == {"320", "360", "500", "768", "1280"}
    for size, (scroll, n_pictures, kind, n_figures) in widths.items():
        assert scroll <= int(size), f"{scroll} pixels wide in a window of {size}"
        assert n_pictures == 2 and kind == ("narrow" if int(size) <= 544 else "wide")
        assert n_figures == text.count('class="figure')


def test_scripts_in_names_do_not_run(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=document.title='ran'><script>document.title='ran'<"
    folder.mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 100, "max_position_embeddings": 8192}
    (folder / "config.json").write_text(json.dumps(config))
    made(str(folder), "--ram", "64", "--ram-gb-s", "40", "--cpu", "avx2")
    seen = _chromium(tmp_path / "profile", tmp_path / "report.html", "--dump-dom")
    assert "<title>ran</title>" not in seen and "<title>" in seen
    assert "<img" not in seen and "<script" not in seen.lower()
