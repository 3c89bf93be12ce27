"""Nothing that identifies somebody leaves the machine, and ordinary profiles are not refused."""

from __future__ import annotations

import copy
import json
import os
import pwd
import socket
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from twofold.profiles.cards import all_cards
from twofold.profiles.errors import UnsafeToShare
from twofold.profiles.identity import harmless_words, personal_words
from twofold.profiles.redaction import Finding, refuse_personal, scan

MACHINE = json.loads((Path(__file__).parent / "data" / "machine.json").read_text("utf-8"))
WORDS = ("janedoe", "jane doe", "doe-box", "doe-box.example.lan")


def _string_paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, str):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in _string_paths(item, (*path, key))]


PATHS = _string_paths(MACHINE)


def _planted(path: tuple[str | int, ...], text: str) -> Any:
    document = copy.deepcopy(MACHINE)
    here = document
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = text
    return document


SECRETS = [
    "/home/jane", "/Users/jane/models", "see /var/lib/x", "path=/opt/models/a.gguf", "(/mnt/big)", "~/models",
    "~jane/x",
    "file:///etc/passwd", "../models/a.gguf", "./a.gguf", r"C:\Users\Jane", "D:/models", r"\\server\share", "$HOME/x",
    "models/home/jane", "/root", "jane@example.com", "jane@laptop", "x jane.doe+ai@uni.example.org.",
    "GPU-9b36c24f-b9bc-1dfa-b6c7-1ea6b42c5b75", "9B36C24FB9BC1DFAB6C71EA6B42C5B75",
    "id 9b36c24f_b9bc_1dfa_b6c7_1ea6b42c5b75",
    "192.168.1.17", "at 10.0.0.5:8080", "fe80::1ff:fe23:4567:890a", "2001:db8:85a3:0:0:8a2e:370:7334", "::1",
    "00:1A:2b:3c:4D:5e", "00-1A-2B-3C-4D-5E", "001a.2b3c.4d5e", "00000000:01:00.0", "0000:3b:00.0", "01:00.0",
    "serial 12", "S/N: 4711", "1320220012345", "C02XL0GTJGH5", "PF3A1B2C4D5", "2026-11-02T12:30:45", "12:30:45",
    "https://example.org/x", "janedoe", "JaneDoe's card", "card of Jane Doe", "host doe-box",
    "doe-box.example.lan", "x_janedoe_y",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_every_kind_is_found(secret: str) -> None:
    assert scan({"gpus": [{"name": secret}]}, WORDS), secret
    assert scan({"gpus": [{"name": f"RTX 3090 ({secret})"}]}, WORDS), secret


@given(
    path=st.sampled_from(PATHS),
    secret=st.sampled_from(SECRETS),
    before=st.sampled_from(["", "RTX 3090 ", "a: ", "(", "="]),
)
def test_planted_in_any_string_it_is_refused_there(path: tuple[str | int, ...], secret: str, before: str) -> None:
    with pytest.raises(UnsafeToShare) as refused:
        refuse_personal(_planted(path, before + secret), WORDS)
    assert str(path[-1]) in refused.value.what
    assert refused.value.exit_code == 1


_hex = st.text("0123456789abcdefABCDEF", min_size=32, max_size=32)
_octet = st.integers(0, 255)


@given(path=st.sampled_from(PATHS), digits=_hex, dashed=st.booleans())
def test_any_uuid(path: tuple[str | int, ...], digits: str, dashed: bool) -> None:
    parts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
    assert scan(_planted(path, ("-" if dashed else "").join(parts)))


@given(st.lists(_octet, min_size=4, max_size=4), st.lists(_octet, min_size=6, max_size=6), st.sampled_from(":-"))
def test_any_address(ip: list[int], mac: list[int], separator: str) -> None:
    assert scan(".".join(map(str, ip)))
    assert scan("addr " + separator.join(f"{octet:02x}" for octet in mac))


@given(st.text(string.ascii_uppercase + string.digits, min_size=10, max_size=20))
def test_any_serial_number(text: str) -> None:
    assume(sum(char.isdigit() for char in text) >= 3)
    assert scan(f"board {text}")


@given(st.lists(st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=8), min_size=1, max_size=4))
def test_any_absolute_path(parts: list[str]) -> None:
    assert scan("/" + "/".join(parts))
    assert scan("model " + "C:\\" + "\\".join(parts))


@given(path=st.sampled_from(PATHS), name=st.text(string.ascii_lowercase, min_size=2, max_size=12))
def test_any_user_or_host_name(path: tuple[str | int, ...], name: str) -> None:
    for text in (name, name.upper(), f"{name}'s card", f"the-{name}-box", f"a_{name}", f"é {name}."):
        kinds = {finding.kind for finding in scan(_planted(path, text), [name])}
        assert "a user or host name" in kinds


def test_an_ordinary_profile_is_not_refused() -> None:
    assert scan(MACHINE, WORDS) == []


@pytest.mark.parametrize("name", sorted(card.name for card in all_cards()))
def test_card_names_are_not_refused(name: str) -> None:
    assert scan(name, WORDS) == []


@pytest.mark.parametrize(
    "text",
    [
        "Intel(R) Xeon(R) CPU E5-2670 v3 @ 2.30GHz", "AMD Ryzen 9 7950X3D 16-Core Processor",
        "13th Gen Intel(R) Core(TM) i9-13900KS",
        "AMD EPYC 7571", "Apple M3 Max", "Snapdragon(R) X Elite - X1E80100 - Qualcomm(R) Oryon(TM) CPU",
        "Neoverse-N1",
        "560.35.03", "32.0.15.6094", "Qwen/Qwen3-30B-A3B-Instruct-2507", "google/gemma-4-31B-it@main",
        "sequential read of 1024 MiB",
        "avx512_vpopcntdq", "avx5124vnniw", "262144x5376", "q8_0", "limit − (current − inactive file cache)",
        "GB/s", "host/device",
        "limits and / or", "n/a", "cgroup v2", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "0.1.0.dev3+g1a2b3c4", "tok/s",
        "3DNow!",
    ],
)  # fmt: skip
def test_ordinary_texts_are_not_refused(text: str) -> None:
    assert scan(text, WORDS) == []


def test_names_match_whole_words_only() -> None:
    assert scan("generic kernels of the AMD card", ["gene", "mark", "erne", "car"]) == []
    assert scan("generic", ["generic"]) == [Finding("the document", "a user or host name", "generic")]


@pytest.mark.parametrize(
    "name", ["root", "ubuntu", "admin", "amd", "epyc", "EPYC", "nvidia", "max", "pi", "x", "4090", "rtx"]
)
def test_a_common_name_does_not_make_every_export_fail(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("USER", name)
    monkeypatch.setenv("HOME", f"/home/{name}")
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert name.casefold() not in personal_words()


def test_names_come_from_account_environment_home_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    account = pwd.struct_passwd(("acctname", "x", 1, 1, "Full Q. Name,Room 1", "/srv/homefolder", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: account)
    monkeypatch.setattr(socket, "gethostname", lambda: "Box-17.lab.example.org")
    for variable, value in {"USER": "u-env", "LOGNAME": "l-env", "SUDO_USER": "s-env", "HOME": "/home/h-env"}.items():
        monkeypatch.setenv(variable, value)
    found = personal_words()
    expected = {"acctname", "homefolder", "full q. name", "u-env", "l-env", "s-env", "h-env", "box-17"}
    assert expected | {"box-17.lab.example.org", "lab", "example"} <= found
    assert not found & {"org", "root", "home", ""}


def test_this_machines_own_names_are_found_or_generic() -> None:
    for name in {pwd.getpwuid(os.getuid()).pw_name, socket.gethostname().split(".")[0]}:
        assert name.casefold() in personal_words() | harmless_words() or len(name) < 2 or name.isdigit()


def test_an_allowed_word_excuses_only_that_name() -> None:
    assert scan("janedoe", ["janedoe"], allowed=["JaneDoe"]) == []
    assert scan("janedoe /home/janedoe", ["janedoe"], allowed=["janedoe"])
    with pytest.raises(UnsafeToShare) as refused:
        refuse_personal({"a": ["janedoe"]}, ["janedoe"])
    assert refused.value.hint is not None and "--allow-word" in refused.value.hint
    assert "a[0]" in refused.value.what


NAMED = [
    "anna", "anna-7b", "org/anna-x", "annas-7b", "annamodel", "Anna_7b", "ANNA", "\uff41\uff4e\uff4e\uff41",
    "an\u200bna", "\u0430nna", "\u0430\u03b7n\u0430-7b", "\xe0nn\xe0", "muster-7b", "mymusters", "m\xfcster-7b",
    "muenster", "evilbox-7b", "bob7b", "Bob's model", "libra-7b",
]  # fmt: skip


@pytest.fixture
def anna(monkeypatch: pytest.MonkeyPatch) -> frozenset[str]:
    account = pwd.struct_passwd(("anna", "x", 1, 1, "Anna Bob M\xfcnster", "/home/anna.muster", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: account)
    monkeypatch.setattr(socket, "gethostname", lambda: "evilbox-libra2.example.org")
    for variable, value in {"USER": "anna", "LOGNAME": "anna", "HOME": "/home/anna.muster"}.items():
        monkeypatch.setenv(variable, value)
    return personal_words()


@pytest.mark.parametrize("text", NAMED)
def test_a_name_is_found_however_it_is_written(anna: frozenset[str], text: str) -> None:
    for planted in (text, f"RTX 3090 {text}", f"org/{text}-GGUF"):
        assert scan(planted, anna), planted


def test_an_ordinary_profile_is_not_refused_for_its_words(anna: frozenset[str]) -> None:
    assert scan(MACHINE, anna) == []
    assert scan(MACHINE, ["eric", "emma", "rand", "dian", "kern", "sing", "oces"]) == []
    assert scan(["gemma-3-270m", "generic", "bobsled"], ["emma", "eric", "bob"]) == []
    assert scan("fe36e40 bea1234", ["fe", "bea"]) == []  # commits


@pytest.mark.parametrize("name", ["max", "epyc-server", "ubuntu-desktop-2", "nvidia.workstation", "root"])
def test_technical_names_do_not_make_an_export_fail(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("USER", name)
    monkeypatch.setenv("HOME", f"/home/{name}")
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert scan([MACHINE, "AMD EPYC 7571", "Apple M3 Max", "NVIDIA RTX"], personal_words()) == []


def test_an_allowed_word_lets_a_longer_word_through() -> None:
    assert scan("annamodel", ["anna"], allowed=["anna"]) == []
    assert scan("annamodel", ["anna"], allowed=["annamodel"]) == []
    assert scan("annamodel annas", ["anna"], allowed=["annamodel"])
    assert scan("anna muster", ["anna.muster", "anna", "muster"], allowed=["Anna.Muster"]) == []


@pytest.mark.parametrize(
    "number", ["+49 171 1234567", "+491711234567", "+1 (555) 123-4567", "0171 1234567", "(0171) 123-4567",
               "089/1234567", "555-123-4567", "(555) 123-4567", "0049 171 1234567", "0171_1234567"]
)  # fmt: skip
def test_telephone_numbers_are_found(number: str) -> None:
    assert scan(number) and scan(f"call {number}") and scan(f"m-{number}")
