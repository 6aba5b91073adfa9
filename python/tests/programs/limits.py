"""Tests with limits, run by pytest with the plugin."""

import unittest

import pytest
import torch

kept: list[torch.Tensor] = []


@pytest.fixture
def weights() -> torch.Tensor:
    return torch.empty(8 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("64 MiB")
def test_passes(weights: torch.Tensor) -> None:
    torch.empty(32 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("32 MiB")
def test_exceeds(weights: torch.Tensor) -> None:
    torch.empty(32 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("16 MiB", metric="reserved")
def test_reserves_too_much() -> None:
    torch.empty(17 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_leaks("1 MiB")
def test_leaks(weights: torch.Tensor) -> None:
    kept.append(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))


@pytest.mark.limit_gpu_leaks("1 MiB")
def test_leaks_nothing() -> None:
    torch.empty(4 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_leaks("1 MiB")
def test_keeps_what_it_makes_once() -> None:
    if not hasattr(test_keeps_what_it_makes_once, "cache"):
        test_keeps_what_it_makes_once.cache = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("1 GiB")
def test_cannot_be_known() -> None:
    torch.cuda.memory._record_memory_history(max_entries=10)
    for _ in range(100):
        torch.empty(1 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.gpu_memory_baseline(tolerance="2%")
def test_stays_the_same(request: pytest.FixtureRequest) -> None:
    torch.empty(20 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("1 GiB")
def test_runs_out_of_memory() -> None:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("1 GiB")
def test_fails() -> None:
    raise AssertionError("its own reason")


def test_has_no_limit() -> None:
    torch.empty(1 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("1 GiB")
def test_comes_after_others() -> None:
    # Memory that a fixture or a library keeps was recorded by the previous test.
    assert kept
    torch.empty(1 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("1 MiB")
def test_what_earlier_tests_left_is_not_counted() -> None:
    assert kept
    torch.empty(1 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("1 MiB", of="process")
def test_what_earlier_tests_left_is_counted() -> None:
    torch.empty(1 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("1 MiB")
def test_exceeds_beside_what_is_left() -> None:
    torch.empty(2 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("1 MiB")
@pytest.mark.limit_gpu_leaks("1 MiB")
@pytest.mark.gpu_memory_baseline
def test_allocates_nothing() -> None:
    pass


class Case(unittest.TestCase):
    @pytest.mark.limit_gpu_leaks("1 MiB")
    def test_case_leaks(self) -> None:
        kept.append(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))

    @pytest.mark.limit_gpu_leaks("1 MiB")
    def test_case_leaks_nothing(self) -> None:
        torch.empty(4 << 20, dtype=torch.uint8, device="cuda")

    @pytest.mark.limit_gpu_leaks("1 MiB")
    def test_case_fails(self) -> None:
        self.fail("its own reason, too")
