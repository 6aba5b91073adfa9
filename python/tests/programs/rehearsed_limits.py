"""Rehearsed tests, run by pytest with the plugin on a machine without a GPU."""

import pytest
import torch


@pytest.fixture
def weights() -> torch.Tensor:
    return torch.empty(8 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("64 MiB", rehearse="h100-80gb")
def test_passes(weights: torch.Tensor) -> None:
    assert torch.cuda.get_device_name() == "NVIDIA H100 80GB HBM3"
    torch.empty(32 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("32 MiB", rehearse="L4")
@pytest.mark.parametrize("device", ["cuda"])
def test_exceeds(weights: torch.Tensor, device: str) -> None:
    assert torch.cuda.get_device_name() == "NVIDIA L4"
    torch.empty(32 << 20, dtype=torch.uint8, device=device)


@pytest.mark.limit_gpu_memory("40 GiB", rehearse="l4")
def test_runs_out_of_memory() -> None:
    torch.empty(30 << 30, dtype=torch.uint8, device="cuda")


@pytest.mark.gpu_memory_baseline(rehearse="l4")
def test_stays_the_same() -> None:
    torch.empty(20 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("64 MiB", rehearse=True)
def test_runs_on_the_device_of_the_configuration(weights: torch.Tensor) -> None:
    device = torch.cuda.get_device_properties(0)
    assert (device.name, device.total_memory) == ("NVIDIA L4", 4 << 30)


@pytest.mark.limit_gpu_memory("1 GiB", rehearse="l4")
@pytest.mark.limit_gpu_leaks("1 MiB", rehearse="h100-80gb")
def test_asks_for_two_gpus() -> None:
    pass


def test_has_no_limit() -> None:
    assert not torch.cuda.is_available()
