"""Model sources: what MODEL means, its metadata, and getting its files.

`resolve(text)` touches only local disk; `identify` asks the Hub whether an id is an own checkpoint; `read_spec` reads
metadata (header bytes at most); `fetch` brings the weights.
"""

from __future__ import annotations

from twofold.profiles.sources.fetch import Progress, download_bytes, fetch
from twofold.profiles.sources.model_ref import ModelRef
from twofold.profiles.sources.resolve import resolve
from twofold.profiles.sources.spec import identify, read_spec

__all__ = ["ModelRef", "Progress", "download_bytes", "fetch", "identify", "read_spec", "resolve"]
