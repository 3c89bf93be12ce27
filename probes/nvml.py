"""What the NVIDIA driver answers, as it answers it: values, or the error of each single query.

Nothing here interprets. A query that fails is an answer (`Failed`), since cards, MIG slices and unified-memory machines
each lack different counters. UUIDs are kept in memory to match NVML's devices with CUDA's, and are never written out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")

NOT_SUPPORTED = 3


@dataclass(frozen=True, slots=True)
class Failed:
    """NVML's error instead of a value."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class RawLink:
    """A PCIe link: generation and lanes, at most and now."""

    generation_max: int | Failed
    width_max: int | Failed
    generation_now: int | Failed
    width_now: int | Failed


@dataclass(frozen=True, slots=True)
class RawGpu:
    """One device or MIG slice. `memory_bytes` is (total, free); switches are NVML's 0 and 1."""

    name: str | Failed
    driver: str | Failed
    memory_bytes: tuple[int, int] | Failed
    compute_capability: tuple[int, int] | Failed
    mig_mode: int | Failed
    is_slice: bool
    power_limit_mw: int | Failed
    display_mode: int | Failed
    display_active: int | Failed
    link: RawLink
    uuid: str = field(default="", repr=False)
    link_uuid: str = field(default="", repr=False)

    def to_json(self) -> dict[str, Any]:
        """Everything but the identifiers, as a test fixture can hold it."""
        link = {part.name: _encode(getattr(self.link, part.name)) for part in fields(self.link)}
        plain = (part.name for part in fields(self) if part.name not in ("link", "uuid", "link_uuid"))
        return {name: _encode(getattr(self, name)) for name in plain} | {"link": link}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> RawGpu:
        """The inverse of `to_json`."""
        parts = {name: _decode(value) for name, value in document.items() if name != "link"}
        link = RawLink(**{name: _decode(value) for name, value in document["link"].items()})
        return cls(link=link, **parts)


def _encode(value: Any) -> Any:
    if isinstance(value, Failed):
        return {"error": value.code, "reason": value.reason}
    return list(value) if isinstance(value, tuple) else value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return Failed(value["error"], value["reason"])
    return tuple(value) if isinstance(value, list) else value


class NoDriver(Exception):
    """NVML cannot be used. `code` is its error; a missing library or driver is a machine without NVIDIA."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def _ask(query: Callable[..., T], *arguments: Any) -> T | Failed:
    import pynvml

    try:
        return query(*arguments)
    except pynvml.NVMLError as error:
        return Failed(int(error.value), str(error))


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """NVML initialised, as the `pynvml` module.

    Raises:
        NoDriver: where there is no driver, or one that does not answer.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDriver(int(error.value), str(error)) from None
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _memory(nvml: Any, handle: Any) -> tuple[int, int] | Failed:
    info = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    return info if isinstance(info, Failed) else (int(info.total), int(info.free))


def _link(nvml: Any, handle: Any) -> RawLink:
    return RawLink(
        generation_max=_ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        width_max=_ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        generation_now=_ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        width_now=_ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
    )


def _first(pair: Any) -> Any:
    return pair if isinstance(pair, Failed) else pair[0]


def _device(nvml: Any, handle: Any, parent: Any = None) -> RawGpu:
    card = handle if parent is None else parent
    uuid, link_uuid = _ask(nvml.nvmlDeviceGetUUID, handle), _ask(nvml.nvmlDeviceGetUUID, card)
    return RawGpu(
        name=_ask(nvml.nvmlDeviceGetName, handle),
        driver=_ask(nvml.nvmlSystemGetDriverVersion),
        memory_bytes=_memory(nvml, handle),
        compute_capability=_ask(nvml.nvmlDeviceGetCudaComputeCapability, card),
        mig_mode=_first(_ask(nvml.nvmlDeviceGetMigMode, card)),
        is_slice=parent is not None,
        power_limit_mw=_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        display_mode=_ask(nvml.nvmlDeviceGetDisplayMode, handle),
        display_active=_ask(nvml.nvmlDeviceGetDisplayActive, handle),
        link=_link(nvml, card),
        uuid="" if isinstance(uuid, Failed) else uuid,
        link_uuid="" if isinstance(link_uuid, Failed) else link_uuid,
    )


def _slices(nvml: Any, card: Any) -> list[RawGpu]:
    count = _ask(nvml.nvmlDeviceGetMaxMigDeviceCount, card)
    found = []
    for index in range(0 if isinstance(count, Failed) else count):
        handle = _ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index)
        if not isinstance(handle, Failed):
            found.append(_device(nvml, handle, card))
    return found


def read_raw() -> tuple[RawGpu, ...]:
    """Every device; a card in MIG mode gives its slices, or itself where it has none (or none may be seen).

    Raises:
        NoDriver: as `session`, and where the devices cannot be counted.
    """
    found: list[RawGpu] = []
    with session() as nvml:
        count = _ask(nvml.nvmlDeviceGetCount)
        if isinstance(count, Failed):
            raise NoDriver(count.code, count.reason)
        for index in range(count):
            handle = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
            if isinstance(handle, Failed):
                found.append(_lost(handle))
                continue
            card = _device(nvml, handle)
            found += (_slices(nvml, handle) if card.mig_mode == nvml.NVML_DEVICE_MIG_ENABLE else []) or [card]
    return tuple(found)


def _lost(failure: Failed) -> RawGpu:
    """A device that is counted but does not answer (fallen off the bus, no permission)."""
    link = RawLink(failure, failure, failure, failure)
    return RawGpu(failure, failure, failure, failure, failure, False, failure, failure, failure, link)


def read_link(uuid: str) -> RawLink | Failed:
    """The link of the card with `uuid`, now.

    Raises:
        NoDriver: as `session`.
    """
    with session() as nvml:
        handle = _ask(nvml.nvmlDeviceGetHandleByUUID, uuid)
        return handle if isinstance(handle, Failed) else _link(nvml, handle)
