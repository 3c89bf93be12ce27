"""The words by which this machine and its user are known, so that none of them leaves it.

Nothing here asks the network: host names come from the kernel, the environment and the local files.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import platform
import re
import socket
from collections.abc import Iterable
from pathlib import Path

from twofold.profiles.cards import all_cards

# Names that thousands of machines share: they identify nobody.
_GENERIC = """
root user users admin administrator guest default nobody owner me test tester demo dev developer build builder runner ci
ubuntu debian fedora centos rocky alma arch manjaro suse opensuse alpine gentoo nixos mint kali rhel pi raspberrypi
ec2-user azureuser vscode codespace codespaces jovyan colab kaggle docker podman container pod node worker home homes
localhost localdomain local lan internal intranet domain host hostname server desktop laptop pc workstation computer
machine vm linux windows macos darwin wsl unix posix workgroup gpu cpu llm ollama llama
com net org edu gov io de uk fr eu
"""

# Words of hardware and of this schema that a profile must be able to say, even where a person is called so.
_TECHNICAL = """
nvidia amd intel arm apple qualcomm geforce rtx gtx radeon instinct tesla quadro titan arc xeon epyc ryzen
threadripper core cores atom celeron pentium ultra athlon opteron neoverse cortex ampere altra graviton
snapdragon genuine authentic processor family model version edition series generation pro max min plus super
mobile mini black white gold silver bronze platinum read write copy load loaded idle driver free total limit
quota threads thread memory bandwidth cache level data unified kernel kernels generic avx avx2 avx512 amx neon
sve linux x86 x86_64 aarch64 arm64 twofold measured reported reasoned unknown true false null none mib gib
bytes cgroup procfs sysfs cpuinfo meminfo sys proc nvml psutil page pages median spread samples best stop rule
time date day base ada hopper lovelace turing volta pascal blackwell cuda gen lanes width link may mark gb us
ms hz ghz mhz no on off of in at by as is tok
"""


_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})


@functools.cache
def harmless_words() -> frozenset[str]:
    """Names that are never treated as somebody's: generic ones, technical words, and the words of card names."""
    cards = {word for card in all_cards() for word in re.findall(r"[a-z0-9]+", card.name.lower())}
    return frozenset(_GENERIC.split()) | frozenset(_TECHNICAL.split()) | cards


def personal_words() -> frozenset[str]:
    """User names, the home folder's name, the user's full name, and host names with their domain parts, case-folded;
    each as it is and its parts.

    Generic and technical names and single characters are left out.
    """
    found: set[str] = set()
    for name in (*_user_names(), *_host_names()):
        folded = name.strip().casefold()
        for word in (folded, *parts_of(folded)):
            if len(word) >= 2 and not word.isdigit() and word not in harmless_words():
                found.add(word)
    return frozenset(found)


def parts_of(name: str) -> tuple[str, ...]:
    """The words of a name: `anna.muster7` is also anna and muster, `Jörg` also joerg; none of long hexadecimals."""
    words: dict[str, None] = {}
    for chunk in re.findall(r"[^\W_]+", name.casefold()):
        if chunk.isalpha():
            words |= dict.fromkeys((chunk, chunk.translate(_UMLAUTS)))
        elif not re.fullmatch(r"[0-9a-f]{8,}", chunk):
            words |= dict.fromkeys(run for run in re.findall(r"[^\W\d_]+", chunk) if len(run) >= 3)
    return tuple(word for word in words if len(word) >= 2 and word not in harmless_words())


def _user_names() -> Iterable[str]:
    for variable in ("USER", "LOGNAME", "LNAME", "USERNAME", "SUDO_USER", "DOAS_USER"):
        yield os.environ.get(variable, "")
    for variable in ("HOME", "USERPROFILE"):
        yield _last_part(os.environ.get(variable, ""))
    with contextlib.suppress(OSError, KeyError, ImportError):
        yield getpass.getuser()
    with contextlib.suppress(RuntimeError):
        yield Path.home().name
    yield from _account()


def _account() -> Iterable[str]:
    """Login, home folder and full name of this process's user in the account database (POSIX)."""
    try:
        import pwd

        account = pwd.getpwuid(os.getuid())
    except (ImportError, KeyError, AttributeError):
        return
    yield account.pw_name
    yield _last_part(account.pw_dir)
    yield account.pw_gecos.split(",")[0]


def _host_names() -> Iterable[str]:
    names = [os.environ.get(variable, "") for variable in ("HOSTNAME", "HOST", "COMPUTERNAME", "USERDOMAIN")]
    names += [socket.gethostname(), platform.node(), _first_line("/etc/hostname"), _first_line("/etc/mailname")]
    own = {name.casefold() for name in names if name}
    names += [alias for line in _lines("/etc/hosts") for alias in _aliases(line, own)]
    for name in names:
        yield name
        yield from name.split(".")


def _aliases(line: str, own: set[str]) -> list[str]:
    """All names of a line of the hosts file that names this host."""
    names = line.split("#")[0].split()[1:]
    return names if any(name.casefold() in own for name in names) else []


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8", "replace")[:65536].splitlines()
    except OSError:
        return []


def _first_line(path: str) -> str:
    return next(iter(_lines(path)), "").strip()


def _last_part(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]
