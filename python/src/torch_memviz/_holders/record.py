"""The holders in a recording: all walks of a program, as plain data."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .borders import Borders
from .graph import BUFFER, GRADIENT, KINDS, PARAMETER, SAVED, UNREACHABLE, VARIABLE, Edge, Graph
from .paths import module, node, path, variable
from .places import place
from .walk import Held, Walk, walked

#: Key of the holders in a snapshot, and the version of their format.
KEY = "holders"
VERSION = 1

#: Where a walk at a new maximum takes place, and how many of those are kept.
BORDERS = ("backward", "optimizer", "forward")
MOST_WALKS = 6

#: Storages written for each walk, the largest first.
MOST_STORAGES = 20_000
#: Holders of one storage that are written, and storages of whose holders the lines are searched.
MOST_HOLDERS = 6
MOST_PLACES = 2_000


class Holders:
    """All walks of a program. What holds memory is written once for all of them."""

    def __init__(
        self, torch: ModuleType, counted: Callable[[], dict[str, list[int]]], *, at_borders: bool, is_rehearsal: bool
    ) -> None:
        """Prepare walks.

        Args:
            torch: PyTorch.
            counted: Returns what tells the instant: for each device, the requests that it has served since the
                recording started (`requests`), and the frees that the program has requested (`frees`).
            at_borders: Whether to walk at new maxima of memory.
            is_rehearsal: Whether walks may take longer than beside a GPU.
        """
        self._torch, self._counted = torch, counted
        #: Where each walk took place, how many bytes it saw, and what it found, as JSON: text does not bring Python's
        #: next collection forward.
        self._walks: list[tuple[str, int, str]] = []
        self._number: dict[str, int] = {}
        self._all: list[dict[str, Any]] = []
        self._borders = Borders(torch, self.note, is_rehearsal=is_rehearsal) if at_borders else None

    def close(self) -> None:
        """Do not walk at borders any more."""
        if self._borders is not None:
            self._borders.close()

    def note(self, at: str) -> None:
        """Walk, and keep the result.

        Args:
            at: Where this takes place: `oom`, `end`, `dump`, `backward`, `optimizer`, or `forward`.
        """
        counted = self._counted()
        with walked(self._torch) as found:
            self._keep(found, at, counted)

    def _keep(self, found: Walk, at: str, counted: dict[str, list[int]]) -> None:
        largest = sorted(found.storages().items(), key=lambda one: -one[1][0].bytes)
        rows = [
            [*where, tensors[0].bytes, *self._row(found.graph, tensors, number < MOST_PLACES)]
            for number, (where, tensors) in enumerate(largest[:MOST_STORAGES])
        ]
        content = {
            "at": at,
            **counted,
            "objects": found.objects,
            "seconds": round(found.seconds, 3),
            "limit": found.limit,
            "unread": found.unread,
            "left_out": max(0, len(largest) - MOST_STORAGES),
            "storages": rows,
        }
        seen = sum(tensors[0].bytes for _, tensors in largest)
        borders = [number for number, (where, _, _) in enumerate(self._walks) if where in BORDERS]
        if at in BORDERS and len(borders) >= MOST_WALKS:
            del self._walks[self._least_telling(borders)]
        self._walks.append((at, seen, _compact(content)))

    def _least_telling(self, borders: list[int]) -> int:
        """Return the walk that saw least memory, among those at optimizers or the others, whichever are more.

        The one that speaks for the peak may be an early one.
        """
        optimizers = [one for one in borders if self._walks[one][0] == "optimizer"]
        others = [one for one in borders if self._walks[one][0] != "optimizer"]
        more = optimizers if len(optimizers) > len(others) else others
        return min(more, key=lambda one: self._walks[one][1])

    def to_json(self) -> str:
        """Return all walks as JSON, for a snapshot that is taken now."""
        walks = ",".join(text for _, _, text in self._walks)
        content = {"version": VERSION, **self._counted(), "holders": self._all}
        return f'{_compact(content)[:-1]},"walks":[{walks}]}}'

    def _row(self, graph: Graph, tensors: list[Held], is_placed: bool) -> tuple[int, list[int], int]:
        """Return the most bytes that a tensor sees of a storage, what holds it, and how many more do."""
        edges = ordered(graph, tensors)
        more = sum(held.more for held in tensors)
        numbers = list(
            dict.fromkeys(
                self._holder(graph, edge, chain, is_placed)
                for edge in edges[: 2 * MOST_HOLDERS]
                for chain in graph.chains(edge)
            )
        )
        more += max(0, len(edges) - 2 * MOST_HOLDERS) + max(0, len(numbers) - MOST_HOLDERS)
        return max(held.seen_bytes for held in tensors), numbers[:MOST_HOLDERS], more

    def _holder(self, graph: Graph, edge: Edge, chain: list[Edge], is_placed: bool) -> int:
        root = chain[0].root
        one: dict[str, Any] = {"path": path(graph, chain), "kind": KINDS[edge.kind], "variable": variable(graph, chain)}
        owner = module(graph, chain, self._torch.nn.Module) if edge.kind in (SAVED, VARIABLE) else ""
        if owner:
            one["module"] = owner
        if node(edge):
            one["node"] = node(edge)
        if root is not None:
            one["root"] = root.kind
            if root.is_library:
                one["library"] = True
        text = json.dumps(one)
        number = self._number.get(text)
        if number is None:
            number = self._number[text] = len(self._all)
            self._all.append(one)
        if is_placed and "line" not in self._all[number] and edge.kind not in (PARAMETER, BUFFER, GRADIENT):
            found = place(graph, chain)
            if found is not None:
                self._all[number].update(file=found.file, line=found.line, code=found.code)
                self._all[number].update(function=found.function, grows=found.grows)
        return number


def ordered(graph: Graph, tensors: list[Held]) -> list[Edge]:
    """Return the edges to the tensors of a storage, the most telling first."""
    edges = graph.whole(edge for held in tensors for edge in held.edges)
    reached = [edge for edge in edges if edge.kind != UNREACHABLE]
    return sorted(reached or edges, key=lambda edge: _order(graph, edge))


def _compact(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _order(graph: Graph, edge: Edge) -> tuple[int, bool, int]:
    chain = next(graph.chains(edge))
    root = chain[0].root
    return edge.kind, root is not None and root.is_library, len(chain)
