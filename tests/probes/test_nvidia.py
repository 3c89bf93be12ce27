"""What the NVIDIA driver's raw answers mean, and the machine without a driver."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.probes.copies import NoCuda, cuda, cuda_index, measure_link
from twofold.probes.nvidia import gpu_from_raw, has_nvidia_device, no_gpu, read_gpus
from twofold.probes.nvml import Failed, NoDriver, RawGpu, RawLink, read_raw, session
from twofold.profiles.hardware import Gpu
from twofold.profiles.redaction import scan

Raws = Callable[[str], tuple[RawGpu, ...]]
NAMES = ("rtx4090_desktop", "rtx3060_laptop_idle", "a100_mig_slices", "gb10_unified", "two_cards")


def has_driver() -> bool:
    try:
        with session():
            return True
    except NoDriver:
        return False


def test_desktop_card(raw_gpus: Raws) -> None:
    gpu = gpu_from_raw(raw_gpus("rtx4090_desktop")[0])
    assert gpu.name == "NVIDIA GeForce RTX 4090"
    assert gpu.vram_total_mib.value == 24564
    assert gpu.vram_free_mib.value == 22994
    assert gpu.compute_capability.value == "8.9"
    assert gpu.power_cap_w.value == 450
    assert gpu.mig.value == "not available"
    assert gpu.display_attached.value is True
    assert gpu.unified_memory.value is False
    assert (gpu.pcie.generation_max.value, gpu.pcie.width_max.value) == (4, 16)
    assert gpu.pcie.generation_load.value is None


def test_idle_laptop_keeps_its_most_apart_from_now(raw_gpus: Raws) -> None:
    pcie = gpu_from_raw(raw_gpus("rtx3060_laptop_idle")[0]).pcie
    assert (pcie.generation_max.value, pcie.generation_now.value) == (4, 1)
    assert (pcie.width_max.value, pcie.width_now.value) == (16, 8)
    assert "idle" in pcie.generation_now.by


def test_unsupported_power_limit_is_unknown_not_zero(raw_gpus: Raws) -> None:
    cap = gpu_from_raw(raw_gpus("rtx3060_laptop_idle")[0]).power_cap_w
    assert cap.value is None
    assert cap.by == "NVML: Not Supported"


def test_slices_report_their_own_memory_and_the_cards_link(raw_gpus: Raws) -> None:
    small, hidden = (gpu_from_raw(raw) for raw in raw_gpus("a100_mig_slices"))
    assert small.mig.value == "slice"
    assert small.vram_total_mib.value == 4864
    assert small.display_attached.value is None
    assert "whole card" in small.pcie.generation_max.by
    assert hidden.vram_total_mib.by == "NVML: Insufficient Permissions"
    assert hidden.unified_memory.value is None
    assert hidden.pcie.width_now.value is None


def test_unified_memory_is_not_zero_vram(raw_gpus: Raws) -> None:
    gpu = gpu_from_raw(raw_gpus("gb10_unified")[0])
    assert gpu.unified_memory.value is True
    assert gpu.vram_total_mib.value is None
    assert "one pool with RAM" in gpu.vram_free_mib.by
    assert gpu.pcie.width_now.value is None
    assert gpu.pcie.width_now.by == "NVML reports 0"


def test_cards_are_never_summed(raw_gpus: Raws) -> None:
    reading = read_gpus(read=lambda: raw_gpus("two_cards"))
    assert [gpu.vram_total_mib.value for gpu in reading.gpus] == [12288, 12288]
    assert reading.note.value == "2 NVIDIA devices"
    assert not reading.failed
    assert len(reading.raws) == len(reading.gpus)


def test_mig_without_a_visible_slice(raw_gpus: Raws) -> None:
    document = raw_gpus("rtx4090_desktop")[0].to_json() | {"mig_mode": 1}
    assert gpu_from_raw(RawGpu.from_json(document)).mig.value == "on, no slice to be seen"


@pytest.mark.parametrize("memory_bytes", [[0, 0], [2**64 - 1, 2**64 - 1], [1 << 30, 1 << 31]])
def test_memory_that_cannot_be_is_unknown(raw_gpus: Raws, memory_bytes: list[int]) -> None:
    document = raw_gpus("rtx4090_desktop")[0].to_json() | {"memory_bytes": memory_bytes}
    gpu = gpu_from_raw(RawGpu.from_json(document))
    assert gpu.vram_total_mib.value is None
    assert gpu.unified_memory.value is None


def test_counters_of_all_ones_are_unknown(raw_gpus: Raws) -> None:
    document = raw_gpus("rtx4090_desktop")[0].to_json()
    document["power_limit_mw"] = document["link"]["width_now"] = 2**32 - 1
    gpu = gpu_from_raw(RawGpu.from_json(document))
    assert gpu.power_cap_w.value is None
    assert gpu.pcie.width_now.by == "NVML reports 4294967295"


def test_a_lost_device_stays_in_the_list_and_fails_the_reading() -> None:
    lost = Failed(15, "GPU is lost")
    raw = RawGpu(lost, lost, lost, lost, lost, False, lost, lost, lost, RawLink(lost, lost, lost, lost))
    reading = read_gpus(read=lambda: (raw,))
    assert reading.failed
    assert reading.gpus[0].name == "NVIDIA device (GPU is lost)"
    assert reading.gpus[0].vram_free_mib.by == "NVML: GPU is lost"


def test_no_devices() -> None:
    reading = read_gpus(read=lambda: ())
    assert reading.gpus == ()
    assert not reading.failed


@pytest.mark.parametrize(
    ("code", "card_present", "failed", "words"),
    [
        (12, False, False, "no NVIDIA driver"),
        (9, False, False, "no NVIDIA driver"),
        (12, True, True, "card is present but its driver does not answer"),
        (18, True, True, "reboot"),
        (4, False, True, "NVML: message"),
    ],
)
def test_why_there_is_no_gpu(code: int, card_present: bool, failed: bool, words: str) -> None:
    reading = no_gpu(NoDriver(code, "message"), card_present)
    assert reading.failed is failed
    assert reading.gpus == ()
    assert words in reading.note.by


@pytest.mark.skipif(has_driver(), reason="this machine has an NVIDIA driver")
def test_the_real_machine_without_a_driver() -> None:
    with pytest.raises(NoDriver):
        read_raw()
    reading = read_gpus()
    assert reading.gpus == ()
    assert (reading.note.source == "unknown") is reading.failed
    assert reading.failed or reading.note.value == "none"
    assert reading.note.by


@pytest.mark.gpu
@pytest.mark.skipif(not has_driver(), reason="needs an NVIDIA driver")
def test_the_real_machine_with_a_driver() -> None:
    reading = read_gpus()
    assert reading.gpus
    for gpu, raw in zip(reading.gpus, reading.raws, strict=True):
        assert gpu.driver.is_known
        loaded = measure_link(gpu, raw)
        assert loaded.pcie.h2d_gb_s.is_known or loaded.pcie.h2d_gb_s.by


def test_pci_lists_a_card_without_a_driver(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x040300\n")
    assert not has_nvidia_device(tmp_path), "the card's sound function is no card"
    (device / "class").write_text("0x030000\n")
    assert has_nvidia_device(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_raw_answers_survive_json_without_identifiers(raw_gpus: Raws, name: str) -> None:
    for raw in raw_gpus(name):
        document = json.loads(json.dumps(raw.to_json()))
        assert RawGpu.from_json(document) == raw
        assert not {"uuid", "link_uuid"} & set(document)


@pytest.mark.parametrize("name", NAMES)
def test_profiles_parts_are_shareable_and_valid(raw_gpus: Raws, name: str) -> None:
    for raw in raw_gpus(name):
        document = gpu_from_raw(raw).model_dump(mode="json")
        assert scan(document) == []
        Gpu.model_validate(document)


def test_identifiers_do_not_show_in_a_representation(raw_gpus: Raws) -> None:
    document = raw_gpus("rtx4090_desktop")[0].to_json()
    link = RawLink(**document.pop("link"))
    raw = RawGpu(link=link, uuid="GPU-secret", link_uuid="GPU-secret", **document)
    assert "secret" not in repr(raw)


def test_cuda_devices_are_matched_by_uuid_whatever_their_order() -> None:
    first = "11111111-2222-3333-4444-555555555555"
    second = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
    assert cuda_index(f"GPU-{second.upper()}", [first, second]) == 1
    assert cuda_index(f"MIG-{first}", [first, second]) == 0
    assert cuda_index(f"GPU-{first}", [second]) is None
    assert cuda_index("", [first]) is None


def test_without_cuda_the_link_under_load_is_unknown(raw_gpus: Raws) -> None:
    try:
        cuda()
    except NoCuda:
        pass
    else:
        pytest.skip("CUDA is usable here")
    raw = raw_gpus("rtx4090_desktop")[0]
    pcie = measure_link(gpu_from_raw(raw), raw).pcie
    for figure in (pcie.generation_load, pcie.width_load, pcie.h2d_gb_s, pcie.d2h_gb_s):
        assert figure.value is None
        assert figure.by.startswith("needs CUDA through torch")
    assert pcie.generation_max.value == 4
