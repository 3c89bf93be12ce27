"""Finding a card by the name that people, shops and drivers give it.

A name becomes a set of words, letters and digits apart, so that `4060ti 16` and `GeForce RTX 4060 Ti 16GB` compare
by what they say. A query fits a card when all its words belong to the card; it means the card when it also has every
word that sets the card apart (`Ti`, `Super`, `Laptop`). `RTX`, `NVIDIA` or the memory size may be left out.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass

from twofold.profiles.cards import CardFacts, all_cards
from twofold.profiles.errors import InvalidOption
from twofold.profiles.text import one_line

# Words that name a family and never set a card with a model number apart.
_FAMILY = frozenset({"rtx", "gtx", "rx", "geforce", "radeon", "instinct", "arc"})
_ALWAYS_ALLOWED = frozenset({"gpu", "graphics", "card", "vram", "gb", "tm", "r"})
_LOOSE_BRANDS = {"workstation": frozenset({"quadro"}), "datacentre": frozenset({"tesla"})}
_SAME = {"mobile": "laptop", "notebook": "laptop"}

MAX_LISTED = 12
MAX_QUERY = 200


@dataclass(frozen=True, slots=True)
class _Words:
    required: frozenset[str]
    allowed: frozenset[str]
    aliases: tuple[frozenset[str], ...]


def words_of(text: str) -> frozenset[str]:
    """The comparable words of a card's name."""
    plain = unicodedata.normalize("NFKC", text).lower()
    plain = re.sub(r"sxm\d", "sxm", plain)
    plain = re.sub(r"(?<![a-z0-9])(\d{1,3})\s*(?:g|gib)\b", r"\1gb", plain)
    parts = re.findall(r"[a-z]+|[0-9]+", plain)
    return frozenset(_SAME.get(part, part) for part in parts)


@functools.cache
def _index() -> tuple[tuple[CardFacts, _Words], ...]:
    return tuple((card, _describe(card)) for card in all_cards())


def _describe(card: CardFacts) -> _Words:
    name = words_of(card.name)
    memory = frozenset({str(card.vram_gb), "gb"})
    required = name - memory - {card.vendor} - frozenset(card.optional_words)
    if any(word.isdigit() for word in required):
        required -= _FAMILY
    loose = _LOOSE_BRANDS.get(card.kind, frozenset())
    return _Words(
        required=required,
        allowed=name | memory | {card.vendor} | _ALWAYS_ALLOWED | loose | frozenset(card.optional_words),
        aliases=tuple(words_of(alias) | {card.vendor} for alias in card.aliases),
    )


def candidates(text: str) -> list[CardFacts]:
    """The cards that `text` can mean: one when it is clear, several when it is not, none when nothing fits."""
    words = words_of(text[:MAX_QUERY])
    if not words - _ALWAYS_ALLOWED:
        return []
    by_alias = [card for card, known in _index() if words | {card.vendor} in known.aliases]
    if by_alias:
        return by_alias
    fitting = [(card, known) for card, known in _index() if words <= known.allowed]
    exact = [card for card, known in fitting if known.required <= words]
    return exact or [card for card, _known in fitting]


def find(text: str) -> CardFacts:
    """See `twofold.profiles.cards.find_card`."""
    found = candidates(text)
    if len(found) == 1:
        return found[0]
    shown = one_line(text, 80)
    if not found:
        raise InvalidOption(f"no card is known as {shown!r}", needed="a card's name", hint=_suggestion(text))
    names = [card.name for card in found]
    more = f", and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    raise InvalidOption(
        f"{shown!r} can mean {len(names)} cards",
        found=", ".join(names[:MAX_LISTED]) + more,
        needed="one card",
        hint=f'name one of them in full, for example --card "{names[0]}"',
    )


def _suggestion(text: str) -> str:
    import difflib

    by_words = {" ".join(sorted(words_of(card.name))): card.name for card in all_cards()}
    spelled = {_spelling(card.name): card.name for card in all_cards()}
    near = difflib.get_close_matches(_spelling(text[:MAX_QUERY]), spelled, n=3, cutoff=0.5)
    names = [spelled[match] for match in near]
    if not names:
        near = difflib.get_close_matches(" ".join(sorted(words_of(text[:MAX_QUERY]))), by_words, n=3, cutoff=0.5)
        names = [by_words[match] for match in near]
    if not names:
        return "twofold cards"
    return f"did you mean {', '.join(names)}? All: twofold cards"


def _spelling(name: str) -> str:
    plain = "".join(re.findall(r"[a-z0-9]+", unicodedata.normalize("NFKC", name).lower()))
    return re.sub(r"^(nvidia|amd|intel)?(geforce|radeon|instinct|tesla)?", "", plain)
