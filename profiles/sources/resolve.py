"""From the text of MODEL to a `ModelRef`: alias, local folder or file, Hub id. Reads local disk only."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from pathlib import Path

from twofold.profiles.errors import InvalidOption, ModelNotFound
from twofold.profiles.settings import checkpoints_dir
from twofold.profiles.sources.aliases import ALIASES
from twofold.profiles.sources.model_ref import ModelRef, local_name, slug

MAX_TEXT = 4096
_PREFIXES = ("https://huggingface.co/", "https://hf.co/", "hf://")
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_HUB = re.compile(
    rf"(?P<repo>{_PART}/{_PART})(?:/(?P<file>[A-Za-z0-9][\w./-]*\.gguf))?(?:@(?P<revision>[\w][\w./-]*))?"
)
_MODEL_SUFFIXES = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl")


def resolve(text: str) -> ModelRef:
    """What `text` names.

    Order: an alias, something on this disk, a quantised checkpoint by its name in `twofold models ls`, a Hub id.

    Raises:
        InvalidOption: an empty or unusable name.
        ModelNotFound: nothing of that name, with the nearest known names.
        UnsafeFile: a pickle.
        CorruptFile, UnsupportedModel: a file or folder of something else.
    """
    text = _checked(text)
    alias = ALIASES.get(text.lower())
    if alias is not None:
        return ModelRef("gguf", text, alias.alias, repo=alias.hub_repo, revision=alias.hub_revision, alias=alias.alias)
    path = Path(os.path.expanduser(text))
    if _exists(path):
        return local_ref(text, path)
    if "/" not in text and _exists(checkpoints_dir() / text / "config.json"):
        return local_ref(text, checkpoints_dir() / text)
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    match = _HUB.fullmatch(text)
    if match is None or ".." in text or "--" in match["repo"] or _looks_like_path(text, match["file"]):
        raise _nothing(text)
    # The owner and the revision stay in the name: it names folders, and two owners may have a model of one name.
    name = slug(match["repo"].replace("/", "--") + (f"@{match['revision']}" if match["revision"] else ""))
    return ModelRef("hub", text, name, repo=match["repo"], revision=match["revision"], file=match["file"])


def local_ref(text: str, path: Path) -> ModelRef:
    """The reference of an existing file or folder."""
    from twofold.profiles.sources.local import classify

    kind, target = classify(path)
    name = slug(local_name(kind, target))
    if kind != "checkpoint":
        # The name stands for the model where its checkpoint is kept, and two folders may be called the same.
        name += "-" + hashlib.sha256(os.fsencode(target.resolve())).hexdigest()[:6]
    return ModelRef(kind, text, name, path=target)


def _checked(text: str) -> str:
    text = text.strip()
    if not text:
        raise InvalidOption("no model is named", needed="an alias, a folder, a .gguf file or a Hub id", hint=_HELP)
    if len(text) > MAX_TEXT:
        raise InvalidOption(
            "the model's name is too long",
            found=f"{len(text):,} characters",
            needed=f"at most {MAX_TEXT:,}",
            hint=_HELP,
        )
    if not text.isprintable():
        raise InvalidOption(
            "the model's name cannot be used", found=ascii(text[:60]), needed="printable text", hint=_HELP
        )
    return text


_HELP = "for example: twofold fit smollm2, or twofold fit google/gemma-4-31B-it"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _looks_like_path(text: str, hub_file: str | None) -> bool:
    return text.startswith((".", "/", "~", os.sep)) or (hub_file is None and text.lower().endswith(_MODEL_SUFFIXES))


def _nothing(text: str) -> ModelNotFound:
    if ".." in text or text.startswith(("/", ".", "~")) or text.lower().endswith(_MODEL_SUFFIXES):
        return ModelNotFound(f"there is no file or folder {text}", hint="check the path, or name a Hub id (org/name)")
    near = nearest(text)
    hint = f"did you mean {' or '.join(near)}?" if near else _HELP
    return ModelNotFound(
        f"no model is called {text}", needed="an alias, a folder, a .gguf file or a Hub id (org/name)", hint=hint
    )


def nearest(text: str) -> list[str]:
    """Known aliases and shipped ids whose names are close to `text`, nearest first."""
    from twofold.profiles.readers.shipped import shipped_ids

    by_key = {known.split("/")[-1].lower(): known for known in (*shipped_ids(), *ALIASES)}
    keys = difflib.get_close_matches(text.lower().split("/")[-1], by_key, n=3, cutoff=0.5)
    return [by_key[key] for key in keys]
