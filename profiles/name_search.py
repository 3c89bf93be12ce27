"""Finding somebody's names in a text, however they are written: in any case, with or without accents, in letters of
another script that look alike, and inside longer words.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from twofold.profiles.identity import harmless_words

LEAST_INSIDE = 4
"""Names of so many letters are also searched inside longer words; shorter ones would be found everywhere."""

# Letters of Cyrillic, Greek and others that look like Latin ones (the usual ones of Unicode's confusables, UTS 39).
_LOOK_ALIKE = str.maketrans(
    "аАвВеЕкКмМнНоОрРсСтТуУхХіІјЈѕЅԁһԛԝαΑΒεΕΖΗιΙκΚΜηΝοΟρΡτΤυΥχΧνγıłŁøØđĐɑɡոօսհ",
    "aabbeekkmmhhooppccttyyxxiijjssdhqwaabeezhiikkmnnooppttuyxxvyillooddagnouh",
)

# Words of the texts that twofold itself writes into a profile, and of models' families: a name inside one of them is
# a coincidence (eric in generic, emma in gemma).
_ORDINARY = """
about above affinity allow allowed alone amount answer answers applies architecture available bandwidth board bounds
bytes cache caches cannot capability capacity cards cgroup checks cleared clock command computes connected container
control controller copies cores corporation count counted cpuid cpuinfo cpuset current device devices digits discrete
display driver during efficiency empty engine environment error errors events family features figure figures flags
folder folders frequency generation generations generic genuine gigatransfers graphics group groups hypervisor identical
idle implementer inactive instruction integrated intel interface kernel kernels known lanes largest least level limit
limits lines links linux listed lists logical lowest machine machines mapped marks measured measurement measures median
medians memavailable meminfo memory microsoft missing model module native nearest needed neither newest nodes noise
nothing number nvidia observed older online operating outside partition parts peaks performance physical pinned platform
possible power present probe probes process processor procfs profile published quota range rates reading reads reason
reclaimable recorded reported reports reserved resident residual running samples schema second seconds sequential
serial series session sessions settings shared single sizes skipped slice snapdragon source speed speeds spread stated
supported system systems sysfs takes their thread threads through tiers timed timings tokens total transfer twofold
under unified unknown updated usable users value values version versions virtual weights where which whole width window
windows without words working
base chat coder deepseek gemma huggingface instruct kimi llama mini ministral mistral mixtral nemo qwen smol smollm
small large medium thinking tiny vision preview
"""


def folded(text: str) -> str:
    """`text` without case, accents and invisible characters, in Latin letters where others look like them."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).translate(_LOOK_ALIKE))
    seen = "".join(char for char in plain if unicodedata.category(char) not in ("Mn", "Cf"))
    return seen.casefold().translate(_LOOK_ALIKE)


@functools.cache
def _ordinary() -> frozenset[str]:
    return frozenset(_ORDINARY.split()) | harmless_words()


_LETTERS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Names:
    """Names to look for. `whole` matches them as words; `inside` are those that longer words may hide."""

    whole: re.Pattern[str] | None
    inside: tuple[str, ...]
    excused: frozenset[str]

    def are_in(self, text: str) -> bool:
        plain = folded(text)
        if self.whole is not None and self.whole.search(plain):
            return True
        runs = set(_LETTERS.findall(plain)) - self.excused
        return any(name in run for run in runs for name in self.inside)


def names_of(words: Iterable[str], allowed: Iterable[str] = ()) -> Names:
    """What to look for: `words` less those that are `allowed`, whose longer words are let through too."""
    excused = {folded(word) for word in allowed}
    names = {folded(word) for word in words} - excused - {""}
    # `_` separates words here: `bob_models` names Bob.
    whole = "|".join(sorted((re.escape(name) + _end_of(name) for name in names), key=len, reverse=True))
    pattern = re.compile(rf"(?<![^\W_])(?:{whole})") if names else None
    # A name in a script without blanks stands between other letters however short it is.
    inside = [name for name in names if _LETTERS.fullmatch(name) and (len(name) >= LEAST_INSIDE or not name.isascii())]
    return Names(pattern, tuple(sorted(inside)), _ordinary() | excused)


def _end_of(name: str) -> str:
    """What may not follow: another letter; and a digit where the name could be the head of a hexadecimal number."""
    is_word = len(name) >= 3 and name[-1].isalpha() and not re.fullmatch(r"[a-f]+", name)
    return r"(?![^\W\d_])" if is_word else r"(?![^\W_])"
