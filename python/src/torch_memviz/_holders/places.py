"""The line that stores into what holds a tensor, found in the program's source."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from .classes import isinstance_of, module_of
from .frames import is_library, source_file
from .graph import Edge, Graph, Key

#: Longest file that is searched, in characters.
MOST_SOURCE = 2_000_000
#: Longest line that is quoted.
MOST_CODE = 120

#: Methods that add to a container.
_GROWS = frozenset(("append", "appendleft", "extend", "insert", "add", "update", "setdefault", "put"))


@dataclass(frozen=True)
class Place:
    """A line that stores a value."""

    file: str
    line: int
    code: str
    #: The function around it, or `<module>`.
    function: str
    #: Whether it adds to a container, rather than assigning.
    grows: bool


def place(graph: Graph, chain: Sequence[Edge]) -> Place | None:
    """Return the line that stores what edges lead to, in code that is not of a library; None if it isn't found.

    That is the last attribute of an object of the program on the path, or the variable at its root.
    """
    found = _attribute(graph, chain)
    if found is not None:
        file, name, is_container = found
        return _best(_stores(file, name, None), file, is_container, 0)
    root = chain[0].root
    if root is None or root.is_library or root.kind not in ("local", "global"):
        return None
    is_container = len(chain) > 1 and _is_element(chain[1])
    return _best(_stores(root.file, root.name, root.first_line), root.file, is_container, root.line)


def _attribute(graph: Graph, chain: Sequence[Edge]) -> tuple[str, str, bool] | None:
    """Return the file of its class, the name of an attribute, and whether a container is stored there."""
    found = None
    for number, edge in enumerate(chain[1:], 1):
        if not isinstance(edge.label, str) or edge.label in (".grad_fn", ".grad", ".__traceback__"):
            break
        name = edge.label.removeprefix(".")
        if name == edge.label or not name.isidentifier() or edge.parent < 0:
            continue
        holder = graph.objects[edge.parent]
        kind = holder if isinstance_of(holder, type) else type(holder)
        name_of_module = module_of(kind)
        module = sys.modules.get(name_of_module) if type(name_of_module) is str else None
        file = source_file(module if type(module) is ModuleType else None)
        if file and not is_library(file):
            found = file, name, number + 1 < len(chain) and _is_element(chain[number + 1])
    return found


def _is_element(edge: Edge) -> bool:
    return isinstance(edge.label, (int, Key))


def _best(stores: Sequence[tuple[int, bool, bool]], file: str, is_container: bool, now: int) -> Place | None:
    """Choose among lines, whether they add to a container, and whether they store a value that may be a tensor."""
    growing = [one for one in stores if one[1]] if is_container else []
    wanted = growing or [one for one in stores if one[2] and not one[1]] or stores
    if not wanted:
        return None
    # The one that ran last, where a function is still running.
    line, grows, _ = max((one for one in wanted if one[0] <= now), default=wanted[-1])
    code = linecache.getline(file, line).strip()
    return Place(
        file, line, code if len(code) <= MOST_CODE else code[: MOST_CODE - 1] + "…", _function(file, line), grows
    )


def _function(file: str, line: int) -> str:
    """Return the innermost function around a line."""
    tree = _tree(file)
    around = [
        (node.lineno, node.name)
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, default=(0, "<module>"))[1]


@functools.lru_cache(maxsize=1024)
def _stores(file: str, name: str, first_line: int | None) -> tuple[tuple[int, bool, bool], ...]:
    """Return the lines that store into a variable of a function, or into an attribute if there is no first line."""
    tree = _tree(file)
    if tree is None:
        return ()
    nodes = ast.walk(_scope(tree, first_line) if first_line is not None else tree)
    found = ((getattr(node, "lineno", 0), _store(node, name, first_line is not None)) for node in nodes)
    return tuple((line, *store) for line, store in found if store is not None)


def _scope(tree: ast.AST, first_line: int) -> ast.AST:
    """Return the function of a local variable, by its first line, which may be that of a decorator."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == first_line:
                return node
    return tree


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.AST | None:
    source = "".join(linecache.getlines(file))
    try:
        return ast.parse(source) if 0 < len(source) <= MOST_SOURCE else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _store(node: ast.AST, name: str, is_variable: bool) -> tuple[bool, bool] | None:
    """Return whether a node adds to a variable or attribute, and whether what it stores may be a tensor."""

    def is_it(target: ast.AST | None) -> bool:
        if isinstance(target, (ast.Tuple, ast.List)):
            return any(map(is_it, target.elts))
        if isinstance(target, ast.Starred):
            return is_it(target.value)
        if is_variable:
            return isinstance(target, ast.Name) and target.id == name
        return isinstance(target, ast.Attribute) and target.attr == name

    def is_element(target: ast.AST) -> bool:
        return isinstance(target, ast.Subscript) and is_it(target.value)

    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(map(is_element, targets)) or (isinstance(node, ast.AugAssign) and is_it(node.target)):
            return True, True
        if any(map(is_it, targets)):
            value = getattr(node, "value", None)
            return False, not isinstance(value, (ast.Constant, ast.List, ast.Dict)) and value is not None
    if isinstance(node, ast.With):
        return (False, True) if any(is_it(item.optional_vars) for item in node.items) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _GROWS and is_it(node.func.value):
            return True, True
        first = node.args[0] if node.args else None
        if node.func.attr == "register_buffer" and isinstance(first, ast.Constant) and first.value == name:
            return False, True
    return None
