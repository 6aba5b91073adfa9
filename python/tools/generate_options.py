"""Writes `torch_memviz/_options.py`: the options of every command as types, made from `memviz COMMAND --help`.

    python tools/generate_options.py            writes the file
    python tools/generate_options.py --check    fails if the file does not match the binary

Requires ruff and the memviz binary, which is named by `MEMVIZ_BINARY` or found on the PATH.
"""

from __future__ import annotations

import argparse
import keyword
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src" / "torch_memviz" / "_options.py"

HEAD = '''"""Options of commands, for editors and type checkers: `--no-infer` is `no_infer=True`.

Generated from the help of the binary by `tools/generate_options.py`; do not edit. Nothing imports it at run time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypedDict

#: The value of an option: a number, a path, or a size or instant as on the command line.
Value = str | int | float | os.PathLike[str]


'''

COMMANDS = (
    *("triage", "info", "peak", "blocks", "fragmentation", "oom", "leaks", "ledger", "nsys", "checkpoint", "simulate"),
    *("fit", "fix", "diff", "check", "ranks", "timeline", "flamegraph", "report", "view"),
)

#: Options that the functions set themselves, and options that only make sense in a terminal.
OURS = ("format", "output", "open", "force", "help", "help-common", "color")

#: An option, with its value name if it takes a value.
OPTION = re.compile(r"^ {2,6}(?:-\w, )?--([\w-]+)(?:[ =]<([^>]*)>)?(?:\.\.\.)?$", re.MULTILINE)

#: Possible values, as a list or on one line.
LISTED = re.compile(r"^ +- ([\w-]+):?", re.MULTILINE)
INLINE = re.compile(r"\[possible values: ([\w, -]+)\]")


def binary() -> str:
    """Return the binary."""
    return os.environ.get("MEMVIZ_BINARY", "memviz")


def options(command: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a command with their types."""
    help_text = subprocess.run([binary(), command, "--help"], check=True, capture_output=True, text=True).stdout
    found = list(OPTION.finditer(help_text))
    for at, option in enumerate(found):
        end = found[at + 1].start() if at + 1 < len(found) else len(help_text)
        name, takes, about = option.group(1), option.group(2), help_text[option.end() : end]
        if name not in OURS:
            yield f"{name.replace('-', '_')}{'_' if keyword.iskeyword(name) else ''}", type_of(takes, about)


def type_of(takes: str | None, about: str) -> str:
    """Return the type of an option's value."""
    if takes is None:
        return "bool"
    _, listed, values = about.partition("Possible values:")
    inline = INLINE.search(about)
    known = LISTED.findall(values) if listed else inline.group(1).split(", ") if inline else []
    # Some values have a suffix, such as annotation:NAME.
    is_open = "VALUE" in takes or ":" in takes
    if known and not is_open:
        item = f"Literal[{', '.join(map(repr, known))}]"
    elif takes == "N":
        item = "int"
    else:
        item = "Value"
    several = re.search(r"may\s+be\s+repeated", about)
    return f"{item} | Sequence[{'str | int' if item != 'int' else 'int'}] | None" if several else f"{item} | None"


def module() -> str:
    """Return the text of the module."""
    classes = []
    for command in COMMANDS:
        fields = "".join(f"    {name}: {kind}\n" for name, kind in options(command))
        title = f"{command.capitalize()}Options"
        classes.append(f'class {title}(TypedDict, total=False):\n    """Options of `memviz {command}`."""\n\n{fields}')
    return HEAD + "\n\n".join(classes)


def main() -> int:
    """Write the module, or compare it with the existing one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true")
    wanted = parser.parse_args()
    formatted = ["ruff", "format", "--stdin-filename", str(TARGET), "-"]
    text = subprocess.run(formatted, input=module(), check=True, capture_output=True, text=True).stdout
    if not wanted.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.name} does not match the binary: run python python/tools/generate_options.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
