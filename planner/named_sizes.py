"""Sizes that a file's name states (`27B`, `0.6B`, `135M`, `8x7B`, `30B-A3B`), held against a model's parameters; and
the known model that a name is of.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from twofold.planner.llama_cpp import QUANTS
from twofold.planner.observed import is_of, name_words
from twofold.profiles.errors import InvalidOption
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.observations import Observation

TOLERANCE = 0.25
"""Names count with or without embeddings, draft heads and vision towers."""
LAST_DIGIT = 0.75
"""Units of a size's last digit that it may be off: a `1B` of 1.67 billion was published."""
EXPERTS_LEAST = 0.6
"""What `8x7B` promises at least: experts share attention (`16x3.8B` was 42 billion)."""
LEAST_MILLIONS = 10
"""`1M` and `2M` in a name are contexts."""
_SIZE = re.compile(r"(?i)(?<![a-z0-9.])(?:(\d+)x|e)?(?:(\d+)_)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")

Range = tuple[float, float]


def _around(number: str, scale: float, experts: int) -> Range:
    value = float(number)
    unit = 10.0 ** -len(number.partition(".")[2])
    off = max(TOLERANCE * value, LAST_DIGIT * unit)
    least = EXPERTS_LEAST * value if experts > 1 else value - off
    return least * scale * experts, (value + off) * scale * experts


def stated_sizes(name: str) -> list[tuple[str, Range]]:
    """Each size in a name, in its own words, with the parameters that it may mean.

    Tokens that a model uses (`A3B`) are no size, and millions count only where no billions are named. `1_8B` is read
    both ways, as 1.8 and as 8 billion.
    """
    found: list[tuple[str, Range]] = []
    matches = list(_SIZE.finditer(name))
    has_billions = any(match[4].lower() == "b" for match in matches)
    for match in matches:
        experts, whole, number, letter = match.groups()
        is_millions = letter.lower() == "m"
        if is_millions and (has_billions or float(number) < LEAST_MILLIONS):
            continue
        scale, copies = (1e6 if is_millions else 1e9), int(experts or 1)
        found.append((match[0], _around(number, scale, copies)))
        if whole is not None and "." not in number:
            found.append((match[0], _around(f"{whole}.{number}", scale, copies)))
    return found


def contradicts(spec: ModelSpec, name: str) -> str | None:
    """The sizes that `name` states where none of them can be this model's; None otherwise."""
    sizes = stated_sizes(name)
    whole = spec.n_parameters
    counts = (whole - spec.n_embedding_weights, whole, whole + spec.draft_head_weights)
    if not sizes or any(low <= count <= high for _, (low, high) in sizes for count in counts):
        return None
    return ", ".join(dict.fromkeys(words for words, _ in sizes))


def model_of(name: str, specs: Iterable[ModelSpec], observations: Sequence[Observation]) -> ModelSpec | None:
    """The one model of `specs` that a file of this name is of: one that a reported run of the name is of, else one
    whose own name, without what it was tuned for, is in it. None where there is none, or the longest fit is two's.
    """
    runs = [one for one in observations if name_words(one.model) == name_words(name)]
    specs = list(specs)
    seen = [spec for spec in specs if any(is_of(spec, run) for run in runs)]
    if len(seen) == 1:
        return seen[0]
    stems = {spec.name: re.sub(r"(?i)-(instruct|it|base|pt|chat)$", "", spec.name.split("/")[-1]) for spec in specs}
    held = [spec for spec in specs if _holds(name, stems[spec.name]) and contradicts(spec, name) is None]
    longest = max((len(stems[spec.name]) for spec in held), default=0)
    best = [spec for spec in held if len(stems[spec.name]) == longest]
    return best[0] if len(best) == 1 else None


def _holds(name: str, stem: str) -> bool:
    """Whether the words of `stem` stand in `name`, whatever separates them; `27B` does not stand in `27B-A3B`."""
    words = [re.escape(word) for word in re.split(r"[-_ ]+", stem)]
    return re.search(rf"(?i)(?<![a-z0-9.]){'[-_ ]+'.join(words)}(?![a-z0-9.])(?![-_ ]a\d)", name) is not None


def refuse_other_size(
    spec: ModelSpec, name: str, specs: Iterable[ModelSpec], observations: Sequence[Observation]
) -> None:
    """A name that states the size of another model is no file of this one.

    Raises:
        InvalidOption: with the model that the name is of, where that is known.
    """
    stated = contradicts(spec, name)
    if stated is None:
        return
    known = model_of(name, specs, observations)
    short = spec.name.split("/")[-1]
    quant = next((quant for quant in QUANTS if quant in name.upper()), QUANTS[0])
    own = f"--weights-name {shlex.quote(f'{short} {quant}')}"
    hint = f"name a file of {spec.name}: {own}"
    if known is not None:
        hint = f"leave out MODEL, or take {known.name} for it; or {hint}"
    raise InvalidOption(
        f"--weights-name names no file of {spec.name}",
        found=f"{stated} in {name!r}",
        needed=f"a model of {spec.n_parameters / 1e9:.3g} billion parameters",
        hint=hint,
    )
