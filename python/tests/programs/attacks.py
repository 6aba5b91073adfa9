"""Attacks a walk: with classes whose code must not run, with debuggers and threads at work, and with a million tensors.

Prints what ran, what broke, and what was found.
"""

import json
import sys
import threading
import time
import weakref

import torch

import torch_memviz
from torch_memviz._holders.walk import MOST_TENSORS, walked

ran: list[str] = []
broken: list[str] = []
done = threading.Event()


def tensor() -> torch.Tensor:
    return torch.zeros(1 << 18, device="cuda")


class Meta(type):
    def __getattribute__(cls, name: str) -> object:
        ran.append(f"metaclass: {name}")
        return type.__getattribute__(cls, name)

    def __hash__(cls) -> int:
        ran.append("metaclass: hash")
        return 1

    def __eq__(cls, other: object) -> bool:
        ran.append("metaclass: ==")
        return False

    def __instancecheck__(cls, other: object) -> bool:
        ran.append("metaclass: isinstance")
        return True


class Odd(metaclass=Meta):
    """Its attributes look like those of an autograd node."""

    next_functions = property(lambda self: ran.append("next_functions"))
    saved_tensors = property(lambda self: ran.append("saved_tensors"))

    def __init__(self) -> None:
        self.kept = tensor()

    def __del__(self) -> None:
        ran.append("__del__")


class OddList(list, metaclass=Meta):  # type: ignore[type-arg]
    def __iter__(self) -> object:  # type: ignore[override]
        ran.append("list: __iter__")
        return iter(())


class Slotted(metaclass=Meta):
    __slots__ = ("kept",)


class Hidden:
    @property
    def __dict__(self) -> object:  # type: ignore[override]
        ran.append("__dict__")
        return {}


class Name(str):
    def __format__(self, spec: str) -> str:
        ran.append("name: __format__")
        return ""

    def __hash__(self) -> int:
        ran.append("name: hash")
        return 1

    def __eq__(self, other: object) -> bool:
        ran.append("name: ==")
        return True


class Namespace(dict):  # type: ignore[type-arg]
    def items(self) -> object:  # type: ignore[override]
        ran.append("namespace: items")
        return ()


class Preparing(type):
    @classmethod
    def __prepare__(cls, *_: object) -> Namespace:  # type: ignore[override]
        return Namespace()


def debugged() -> None:
    """Run under a debugger. If a walk changed local variables, the function would fail."""

    def look(*_: object) -> object:
        for _number in range(20):
            pass
        return look

    def body(x: int) -> int:
        a = x + 1
        b = a + 1
        return a + b + x

    sys.settrace(look)  # type: ignore[arg-type]
    while not done.is_set():
        try:
            body(1)
        except Exception as error:
            broken.append(repr(error))
    sys.settrace(None)


def starting() -> None:
    """Start threads that end at once."""

    def end() -> None:
        kept = [tensor()]
        kept.clear()

    while not done.is_set():
        threads = [threading.Thread(target=end) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def generator(entered: threading.Event) -> object:
    inside = tensor()
    entered.set()
    done.wait()
    yield inside.shape


def main() -> None:
    odd, listed, slotted, hidden = Odd(), OddList([tensor()]), Slotted(), Hidden()
    slotted.kept = tensor()
    object.__getattribute__(hidden, "__class__").mro()
    named = type("Plain", (), {})()
    named.__dict__[Name("kept")] = tensor()
    died = weakref.ref(odd, lambda _: ran.append("weakref"))
    ran.clear()
    paths = [one.path for one in torch_memviz.holders()]

    class Body(metaclass=Preparing):
        within = torch_memviz.holders()

    by_classes = list(ran)
    del odd
    released = [one for one in ran if one in ("__del__", "weakref")]

    entered = threading.Event()
    running = generator(entered)
    threads = [threading.Thread(target=work) for work in (debugged, debugged, starting)]
    threads.append(threading.Thread(target=lambda: next(running)))  # type: ignore[call-overload]
    for thread in threads:
        thread.start()
    entered.wait()
    until = time.monotonic() + 8
    while time.monotonic() < until:
        by_threads = [one.path for one in torch_memviz.holders()]
    done.set()
    for thread in threads:
        thread.join()

    million = list(torch.zeros(1_000_000, device="cuda").unbind())
    with walked(torch, most_objects=50_000, most_seconds=2) as few:
        [shared] = few.storages().values() if len(few.storages()) == 1 else [max(few.storages().values(), key=len)]
        bounded = [few.limit, few.objects <= 52_048, len(shared) <= MOST_TENSORS, shared[-1].more > 10_000]
    print(
        json.dumps(
            {
                "ran": by_classes,
                "paths": paths,
                "released": released,
                "died": died() is None,
                "broken": broken,
                "threads": by_threads,
                "bounded": bounded,
                "unused": [len(listed), len(million), str(Body), slotted.kept.shape],
            }
        )
    )


main()
