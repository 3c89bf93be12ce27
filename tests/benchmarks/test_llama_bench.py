"""A llama-bench of the person's own: what is asked of it, and how its answer is read.

The program here is a script that answers in llama-bench's format, since a build of it cannot be counted on.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from versus.llama_bench import LlamaBench, parse_row

from twofold.profiles.errors import EngineFailed, InvalidOption

ROW = {
    "build_commit": "b0ff7c4", "build_number": 6500, "cpu_info": "AMD EPYC", "gpu_info": "", "backends": "CPU",
    "model_filename": "q8.gguf", "model_type": "llama 135M Q8_0", "model_size": 143000000, "n_threads": 2,
    "type_k": "f16", "type_v": "f16", "flash_attn": False, "n_prompt": 0, "n_gen": 16, "n_depth": 40,
    "avg_ns": 160000000, "stddev_ns": 0, "avg_ts": 100.5, "stddev_ts": 0.0, "samples_ns": [160000000],
    "samples_ts": [100.5],
}  # fmt: skip
HELP = "  -d, --n-depth <n>   (default: 0)"


def _program(folder: Path, answer: str, code: int = 0, help_text: str = HELP) -> Path:
    path = folder / "llama-bench"
    script = f"""#!/bin/sh
if [ "$1" = --help ]; then echo '{help_text}'; exit 0; fi
echo "$@" >> {folder}/calls
cat <<'END'
{answer}
END
exit {code}
"""
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_generation_stands_behind_as_many_tokens_as_the_prompt(tmp_path: Path) -> None:
    bench = LlamaBench(_program(tmp_path, json.dumps([ROW])), Path("q8.gguf"), threads=2)
    assert bench.decode_speed(16, behind=40) == 100.5
    assert bench.prefill_speed(512) == 100.5
    generation, prompt = (tmp_path / "calls").read_text().splitlines()
    assert generation == "-m q8.gguf -t 2 -ngl 0 -r 1 -o json -p 0 -n 16 -d 40"
    assert prompt == "-m q8.gguf -t 2 -ngl 0 -r 1 -o json -p 512 -n 0"
    about = bench.about()
    assert about["version"] == "llama-bench, build 6500 (b0ff7c4)"
    assert about["run"]["cpu_info"] == "AMD EPYC"


def test_an_old_build_without_depths_is_not_asked_for_one(tmp_path: Path) -> None:
    bench = LlamaBench(_program(tmp_path, json.dumps([ROW]), help_text="usage"), Path("q8.gguf"), threads=1)
    bench.decode_speed(8, behind=40)
    assert "-d" not in (tmp_path / "calls").read_text().split()
    assert bench.about()["behind_prompt"] is False


@pytest.mark.parametrize("answer", ["", "hello", "[]", "{}", json.dumps([ROW, ROW]), json.dumps([{"avg_ts": 0}]),
                                    json.dumps([{"n_gen": 1}]), "[null]"])  # fmt: skip
def test_another_programs_answer_is_refused(answer: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_row(answer, Path("/usr/bin/llama-cli"))
    assert "llama-cli" in caught.value.what and caught.value.hint


def test_a_failing_or_missing_program_is_an_error(tmp_path: Path) -> None:
    bench = LlamaBench(_program(tmp_path, "", code=1), Path("q8.gguf"), threads=1)
    with pytest.raises(EngineFailed, match="ended with 1"):
        bench.prefill_speed(8)
    with pytest.raises(InvalidOption, match="not a file"):
        LlamaBench(tmp_path / "nothing", Path("q8.gguf"), threads=1)
    plain = tmp_path / "not-a-program"
    plain.write_text("text")
    with pytest.raises(InvalidOption, match="cannot be run"):
        LlamaBench(plain, Path("q8.gguf"), threads=1)
