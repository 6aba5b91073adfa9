"""Holds memory in many ways, and prints what a walk finds and whether it had effects."""

import gc
import json
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_memviz

MIB = 1 << 18  # elements of float32
ran: list[str] = []


class Hostile:
    """Objects whose code must not run."""

    def __getattr__(self, name: str) -> object:
        ran.append(f"__getattr__ {name}")
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        ran.append("__eq__")
        return False

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        ran.append("__repr__")
        return ""

    @property
    def value(self) -> None:
        ran.append("property")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        ran.append("__class__")
        return object


class HostileDict(dict):  # type: ignore[type-arg]
    def items(self) -> object:  # type: ignore[override]
        ran.append("items")
        return ()

    def __iter__(self) -> object:  # type: ignore[override]
        ran.append("__iter__")
        return iter(())


class Noisy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> object:
        ran.append("__torch_function__")
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc]


class Slotted:
    __slots__ = ("kept",)


class Cycle:
    pass


class Packed(torch.Tensor):
    """A tensor that consists of another one, as distributed and quantized ones do."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Packed":
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, device=inner.device)  # type: ignore[attr-defined]
        made.inner = inner
        return made  # type: ignore[no-any-return]

    def __tensor_flatten__(self) -> object:
        ran.append("__tensor_flatten__")
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> object:
        ran.append("__torch_dispatch__")
        raise NotImplementedError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(512, 512)
        self.last = None
        self.register_buffer("table", torch.zeros(MIB))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.fc(x).detach()
        return self.fc(x)


def tensor(size: int) -> torch.Tensor:
    return torch.zeros(size * MIB, device="cuda")


def requested() -> int:
    held: int = torch.cuda.memory_stats()["requested_bytes.all.current"]
    return held


def unpack(packed: torch.Tensor) -> torch.Tensor:
    ran.append("unpack hook")
    return packed


def failing() -> None:
    lost = tensor(11)
    raise RuntimeError(str(lost.shape))


def generator() -> object:
    inside = tensor(12)
    yield inside.shape


def main() -> None:
    net = Net().cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.zeros(512, 512, device="cuda")).sum().backward()
    optimizer.step()

    history = [net(torch.zeros(512, 512, device="cuda")).mean()]
    hooked = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpack):
        graph = (hooked * 2).exp()
    recomputed = checkpoint(net, torch.zeros(512, 512, device="cuda", requires_grad=True), use_reentrant=False)

    enclosed = tensor(13)

    def closure() -> torch.Size:
        return enclosed.shape

    cache = HostileDict(key=tensor(14))
    hostile = {Hostile(): Hostile()}
    slotted = Slotted()
    slotted.kept = tensor(15)
    noisy = tensor(16).as_subclass(Noisy)
    view = tensor(17)[:1]
    try:
        failing()
    except RuntimeError as error:
        caught = error
    running = generator()
    next(running)  # type: ignore[call-overload]
    cycle = Cycle()
    cycle.me, cycle.kept = cycle, tensor(18)  # type: ignore[attr-defined]
    gone = tensor(19)
    net.register_buffer("packed", Packed(tensor(20)))
    global shared
    shared = tensor(21)
    del cycle, gone, closure

    gc.disable()
    ran.clear()
    before = torch.cuda.memory_stats()
    first = torch_memviz.holders()
    second = torch_memviz.holders()
    unchanged = torch.cuda.memory_stats() == before
    ended = requested()
    # A variable that is deleted after the walk must not be kept by it.
    del slotted, noisy, view, caught
    freed = ended - requested()
    print(
        json.dumps(
            {
                "holders": [
                    [one.bytes >> 20, one.seen_bytes, one.path, one.kind, one.node, one.others] for one in first
                ],
                "same": first == second,
                "unchanged": unchanged,
                "freed": freed >> 20,
                "ran": ran,
                "unused": [len(history), graph.shape, recomputed.shape, len(cache), len(hostile), sys.getprofile()],
            }
        )
    )


main()
