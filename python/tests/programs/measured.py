"""Measured tests, run by pytest with the plugin."""

import os

import pytest
import torch

kept: list[torch.Tensor] = []


def empty(mib: int) -> torch.Tensor:
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def test_with_the_value(gpu_memory) -> None:
    assert gpu_memory.peak == 0
    empty(4)
    assert gpu_memory.peak == 4 << 20
    kept.append(empty(2))
    assert (gpu_memory.peak, gpu_memory.largest) == (4 << 20, "test_it.py:12 empty")
    assert gpu_memory.reserved >= 4 << 20


def test_without_a_limit() -> None:
    empty(40)


@pytest.mark.gpu_memory_baseline
def test_baseline() -> None:
    empty(int(os.environ["SIZE"]))


@pytest.mark.limit_gpu_memory("4 MiB")
@pytest.mark.parametrize(
    "mib",
    [
        pytest.param(8, id="small", marks=pytest.mark.limit_gpu_memory("8 MiB")),
        pytest.param(8, id="large"),
    ],
)
def test_parameters(mib: int) -> None:
    empty(mib)


def cache() -> None:
    kept.append(empty(4))


@pytest.mark.limit_gpu_leaks("1 MiB", ignore=r"test_it\.py:\d+ cache")
def test_ignored() -> None:
    cache()


@pytest.mark.limit_gpu_leaks("1 MiB", ignore=r"elsewhere")
def test_not_ignored() -> None:
    cache()


def test_allocates_nothing() -> None:
    pass
