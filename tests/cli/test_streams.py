"""Pipes that close, full disks, closed streams, and text that a stream cannot show."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from twofold.cli.errors import explain, run_app

pytestmark = pytest.mark.skipif(os.name != "posix", reason="shell redirections")


def shell(line: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """`line` in bash, where `twofold` is this interpreter's."""
    prefix = f'twofold() {{ "{sys.executable}" -m twofold "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", prefix + line],
        env=os.environ | changes,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["cards --format json", "--help", "--version"])
def test_a_reader_that_leaves_ends_it_quietly_as_in_any_shell(command: str) -> None:
    # The reader is gone before anything is written: `true` has ended when the interpreter is up.
    result = shell(f"twofold {command} | true; echo ${{PIPESTATUS[0]}}")
    assert (result.stdout, result.stderr) == ("141\n", "")


@pytest.mark.parametrize("command", ["nosuch", "run", "fit nosuch --card 3060"])
def test_a_reader_of_errors_that_leaves_does_not_hide_the_exit_code(command: str) -> None:
    result = shell(f"twofold {command} 2>&1 | true; echo ${{PIPESTATUS[0]}}")
    assert (result.stdout, result.stderr) == ("2\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["cards --format json", "cards", "--help", "fit --help", "--version"])
def test_output_that_is_lost_is_an_error(unbuffered: str, command: str) -> None:
    result = shell(f"twofold {command} > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: standard output cannot be written: No space left on device",
        "hint: check where the output goes (> or |)",
    ]


def test_a_closed_standard_output_is_an_error_and_no_defect() -> None:
    result = shell("twofold cards >&-")
    assert result.returncode == 1
    assert "standard output cannot be written" in result.stderr
    assert "unexpected" not in result.stderr


def test_messages_that_nobody_sees_change_neither_output_nor_exit_code() -> None:
    assert shell("twofold cards 4090 2>&- | wc -l; exit ${PIPESTATUS[0]}").returncode == 0
    assert shell("twofold fit nosuch --card 3060 2>&-").returncode == 2
    if Path("/dev/full").exists():
        assert shell("twofold cards > /dev/null 2>/dev/full").returncode == 0


def test_a_file_does_not_get_the_descriptor_of_a_closed_stream(tmp_path: Path) -> None:
    result = shell(f"twofold probe --no-bandwidth -o '{tmp_path}/p.json' 2>&- >&-")
    assert result.returncode == 1, "the table could not be printed"
    assert (tmp_path / "p.json").read_bytes().startswith(b"{")


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (OSError(36, "File name too long", "x" * 5000), 1, "File name too long: " + "x" * 199 + "…"),
        (OSError(2, "No such file or directory"), 1, "hint: cd to a folder that exists"),
        (OSError(16, "Device or resource busy", b"/a\xff"), 1, "Device or resource busy: /a?"),
    ],
)
def test_errors_of_the_system(raised: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise raised

    assert run_app(fail) == code
    found = capsys.readouterr().err
    assert said in found
    assert "None" not in found and "unexpected" not in found


def test_no_error_of_the_system_is_a_defect() -> None:
    for number in range(1, 132):
        assert explain(OSError(number, os.strerror(number), "place")) is not None


def test_text_that_a_terminal_would_act_on_is_not_sent_to_it(tmp_path: Path) -> None:
    name = b"a\x1b[31m\xff.json"
    result = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"twofold", b"profile", b"show", os.fsencode(tmp_path) + b"/" + name],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 1
    assert b"\x1b" not in result.stderr and b"a?[31m?.json" in result.stderr


def test_markup_in_names_is_shown_as_it_is() -> None:
    import io

    from twofold.cli.output import Sink

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    stream = Terminal()
    Sink(stream).table("[x] :smile:", ("[bold]name",), [("[/nope] :smile: \x1b[2J\udcff",)])
    for text in ("[x] :smile:", "[bold]name", "[/nope] :smile: ?[2J?"):
        assert text in stream.getvalue()


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = shell(f"cat '{pipe}' & twofold profile export '{pipe}' --no-bandwidth; wait")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("{") and result.stdout.endswith("}\n")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_standard_output_by_any_name(tmp_path: Path) -> None:
    for name in ("-", "/dev/stdout"):
        result = shell(f"twofold profile export {name} --no-bandwidth | cat")
        assert result.stdout.startswith("{"), result.stderr
    result = shell("twofold probe --no-bandwidth -o -")
    assert result.stdout.startswith("{") and not Path("-").exists()


def test_a_loop_of_links_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    result = shell(f"twofold profile export '{tmp_path}/a' --no-bandwidth")
    assert result.returncode == 1
    assert "Too many levels of symbolic links" in result.stderr
