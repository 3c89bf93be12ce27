"""Host↔device copies through torch: the link's bandwidth both ways, and its generation and width under load.

An idle link clocks down, so generation and width count while copies are in flight. torch is imported only when there is
a card, since that alone takes about a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twofold.probes.nvml import Failed, NoDriver, RawGpu, RawLink, read_link, session
from twofold.probes.stopping import StopRule, collect
from twofold.profiles.figures import Figure, measured, unknown
from twofold.profiles.hardware import Gpu, Pcie
from twofold.profiles.units import MIB

_BUFFER_BYTES = 64 * MIB
_COPIES_PER_SAMPLE = 4
_RULE = StopRule(min_samples=7, min_seconds=0.15, max_seconds=0.8)


class NoCuda(Exception):
    """CUDA cannot be used through torch; the message says why."""


def cuda() -> Any:
    """The torch module, with CUDA usable.

    Raises:
        NoCuda: when torch is missing, has no CUDA build, or sees no device.
    """
    try:
        import torch
    except ImportError as error:
        raise NoCuda(f"torch cannot be imported ({type(error).__name__})") from None
    if torch.version.cuda is None:
        raise NoCuda("this torch build has no CUDA")
    if not torch.cuda.is_available():
        raise NoCuda("torch sees no CUDA device")
    return torch


def _hex(uuid: str) -> str:
    """The hexadecimal digits of `GPU-…`, `MIG-…` or a bare UUID."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").replace("-", "").lower()


def cuda_index(uuid: str, uuids: list[str]) -> int | None:
    """The CUDA index of the NVML device `uuid`, or None where CUDA does not see it.

    The two number devices differently, and CUDA_VISIBLE_DEVICES hides cards from CUDA only.
    """
    if not uuid:
        return None
    wanted = _hex(uuid)
    return next((index for index, other in enumerate(uuids) if _hex(other) == wanted), None)


class _LinkWatch:
    """The highest generation and width seen."""

    def __init__(self, read: Callable[[], RawLink | Failed]) -> None:
        self._read = read
        self.generations: list[int] = []
        self.widths: list[int] = []
        self.reason = "NVML was not asked during a copy"

    def look(self) -> None:
        try:
            link = self._read()
        except NoDriver as error:
            link = Failed(error.code, str(error))
        if isinstance(link, Failed):
            self.reason = f"NVML: {link.reason}"
            return
        for answer, seen in ((link.generation_now, self.generations), (link.width_now, self.widths)):
            if isinstance(answer, Failed):
                self.reason = f"NVML: {answer.reason}"
            elif answer > 0:
                seen.append(answer)

    def figure(self, seen: list[int], unit: str) -> Figure:
        if not seen:
            return unknown(unit, self.reason)
        return measured(max(seen), unit, "NVML during copies", n=len(seen))


def _rate(torch: Any, target: Any, source: Any, watch: _LinkWatch, name: str) -> Figure:
    """GB/s of copying `source` to `target`, timed by CUDA events; looks at the link while copies are queued."""

    def sample() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(_COPIES_PER_SAMPLE):
            target.copy_(source, non_blocking=True)
        end.record()
        watch.look()
        end.synchronize()
        return float(_COPIES_PER_SAMPLE * _BUFFER_BYTES / (start.elapsed_time(end) * 1e-3) / 1e9)

    sample()  # the link leaves its idle state
    return collect(sample, _RULE).figure("GB/s", f"{name} copies of {_BUFFER_BYTES // MIB} MiB from pinned memory")


def _loaded(torch: Any, index: int, link_uuid: str, pcie: Pcie) -> Pcie:
    watch = _LinkWatch(lambda: read_link(link_uuid))
    # The outer session makes the inner ones cheap, so that a look ends while the copies are still in flight.
    with session(), torch.cuda.device(index):
        host = torch.empty(_BUFFER_BYTES, dtype=torch.uint8, pin_memory=True)
        device = torch.zeros(_BUFFER_BYTES, dtype=torch.uint8, device="cuda")
        h2d = _rate(torch, device, host, watch, "host to device")
        d2h = _rate(torch, host, device, watch, "device to host")
        del device
        torch.cuda.empty_cache()
    return pcie.model_copy(
        update={
            "generation_load": watch.figure(watch.generations, ""),
            "width_load": watch.figure(watch.widths, "lanes"),
            "h2d_gb_s": h2d,
            "d2h_gb_s": d2h,
        }
    )


def without_load(gpu: Gpu, reason: str) -> Gpu:
    """`gpu` with `reason` in place of what only copies can tell."""
    missing = {
        "generation_load": unknown("", reason),
        "width_load": unknown("lanes", reason),
        "h2d_gb_s": unknown("GB/s", reason),
        "d2h_gb_s": unknown("GB/s", reason),
    }
    return gpu.model_copy(update={"pcie": gpu.pcie.model_copy(update=missing)})


def measure_link(gpu: Gpu, raw: RawGpu) -> Gpu:
    """`gpu` with its link measured under a copy load, or the reason why it could not be."""
    try:
        torch = cuda()
        uuids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
        index = cuda_index(raw.uuid, uuids)
        if index is None:
            raise NoCuda("CUDA does not see this device (CUDA_VISIBLE_DEVICES?)")
        return gpu.model_copy(update={"pcie": _loaded(torch, index, raw.link_uuid, gpu.pcie)})
    except NoDriver as error:
        return without_load(gpu, f"NVML: {error}")
    except NoCuda as error:
        return without_load(gpu, f"needs CUDA through torch: {error}")
    except (RuntimeError, AttributeError) as error:  # torch raises these for out of memory, lost devices, old versions
        # The message itself may hold addresses or paths, which a profile must not.
        kind = "out of memory" if "out of memory" in str(error) else type(error).__name__
        return without_load(gpu, f"the copy failed: {kind}")
