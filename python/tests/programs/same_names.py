"""Tests with the same name in several classes and folders, which need different amounts of memory.

One of three exceeds its limit. Its name shows which.
"""

import pytest
import torch


def use(mib: int) -> None:
    for _ in range(20):
        torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_gpu_memory("100 MiB")
class TestLittle:
    def test_it(self) -> None:
        use(10)

    @pytest.mark.parametrize("name", ["a/b", "a-b", "A-b"])
    def test_parameters(self, name: str) -> None:
        use({"a/b": 20, "a-b": 300, "A-b": 30}[name])


@pytest.mark.limit_gpu_memory("100 MiB")
class TestMuch:
    def test_it(self) -> None:
        use(300)


@pytest.mark.gpu_memory_baseline
class TestBaselineOfLittle:
    def test_it(self) -> None:
        use(10)


@pytest.mark.gpu_memory_baseline
class TestBaselineOfMuch:
    def test_it(self) -> None:
        use(300)
