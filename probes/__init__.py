"""What can this machine do? Facts and measurements, each with its provenance, or unknown with the reason.

`probe()` gives the whole `HardwareProfile`. Single probes measure nothing and take milliseconds:
`memory.read_memory()`, `cpu.read_cpu()`, `nvidia.read_gpus()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.profiles.hardware import HardwareProfile


def probe(*, bandwidth: bool = True, progress: Callable[[str], None] | None = None) -> HardwareProfile:
    """This machine as a profile; see `twofold.probes.machine.probe`."""
    from twofold.probes import machine

    return machine.probe(bandwidth=bandwidth, progress=progress)
