"""Writes `torch_memviz/answers.py`: the JSON of every command as dataclasses, made from `memviz schema`.

    python tools/generate_answers.py            writes the file
    python tools/generate_answers.py --check    fails if the file does not match the binary

Requires ruff and the memviz binary, which is named by `MEMVIZ_BINARY` or found on the PATH.
"""

from __future__ import annotations

import argparse
import json
import keyword
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "torch_memviz" / "answers.py"

HEAD = '''"""The answers of all commands as dataclasses, with the keys of `--format json` as fields.

Generated from the JSON Schema of the binary by `tools/generate_answers.py`; do not edit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ._decode import REST
from ._table import Answer
'''

Schema = dict[str, Any]

SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


@dataclass(frozen=True)
class Field:
    """A key of an object."""

    name: str
    type: str
    description: str
    required: bool


def words(schema: Schema) -> str:
    """Return a description without links to the library's documentation."""
    return re.sub(r"\s*See \[`[^`]*`\]\.", "", str(schema["description"]))


class Generator:
    """Converts the definitions of a schema to Python."""

    def __init__(self, schema: Schema) -> None:
        self.definitions: dict[str, Schema] = schema["$defs"]
        self.version = 0
        self.roots: dict[str, str] = {}
        for answer in schema["oneOf"]:
            self.version = answer["properties"]["schema_version"]["const"]
            self.roots[answer["properties"]["command"]["const"]] = name(answer["$ref"])
        self.names: dict[str, str] = {definition: definition for definition in self.definitions}
        for command, definition in self.roots.items():
            if not {"oneOf", "anyOf"} & self.definitions[definition].keys():
                self.names[definition] = f"{command.title()}Answer"
        if len(set(self.names.values())) != len(self.names):
            raise ValueError("expected unique names, found two definitions with the same name")

    def module(self) -> str:
        """Return the whole file."""
        aliases, classes = [], []
        for definition in sorted(self.definitions, key=self.names.__getitem__):
            schema = self.definitions[definition]
            if "anyOf" in schema:
                aliases.append(self.union(definition, [option["$ref"] for option in schema["anyOf"]]))
            elif "oneOf" in schema and "properties" in schema:
                aliases.append(self.union(definition, [option["$ref"] for option in schema["oneOf"]]))
            elif "oneOf" in schema:
                classes.append(self.literal(definition))
            else:
                classes.append(self.dataclass(definition))
        roots = ", ".join(f'"{command}": {self.names[name]}' for command, name in self.roots.items())
        tail = (
            "#: Version of the keys.\n"
            f"SCHEMA_VERSION = {self.version}\n\n"
            "#: The answer of each command.\n"
            f"ANSWERS: dict[str, Any] = {{{roots}}}\n"
        )
        return "\n\n".join([HEAD, *classes, *aliases, tail])

    def literal(self, definition: str) -> str:
        """Return the type for one of several strings."""
        schema = self.definitions[definition]
        lines = [f"#: {line}" for line in textwrap.wrap(words(schema), 110)]
        lines.append(f"{self.names[definition]} = Literal[")
        for option in schema["oneOf"]:
            lines += [f"    # {line}" for line in textwrap.wrap(words(option), 110)]
            lines.append(f"    {option['const']!r},")
        return "\n".join([*lines, "]"])

    def union(self, definition: str, references: list[str]) -> str:
        """Return the type for one of several objects."""
        description = textwrap.wrap(words(self.definitions[definition]), 110)
        names = " | ".join(self.names[name(reference)] for reference in references)
        return "\n".join([*(f"#: {line}" for line in description), f"{self.names[definition]} = {names}"])

    def dataclass(self, definition: str) -> str:
        """Return the dataclass for an object."""
        schema = self.definitions[definition]
        is_answer = definition in self.roots.values()
        base = "(Answer)" if is_answer or self.variant(definition) else ""
        # The full contents of an answer would fill several screens: its base class has a short `__repr__`.
        options = "frozen=True, kw_only=True, repr=False" if is_answer else "frozen=True, kw_only=True"
        lines = [f"@dataclass({options})", f"class {self.names[definition]}{base}:"]
        lines += indented(docstring(words(schema)))
        # Optional keys come last, since they have a default.
        for field in sorted(self.fields(definition), key=lambda field: not field.required):
            default = "" if field.required else " = None"
            optional = "" if field.required or "None" in field.type.split(" | ") else " | None"
            lines += ["", f"    {field.name}: {field.type}{optional}{default}", *indented(docstring(field.description))]
        if "additionalProperties" in schema:
            lines += ["", f"    others: dict[str, {self.type(schema['additionalProperties'])}] = field(metadata=REST)"]
            lines += indented(docstring("All other keys, which depend on what it is about."))
        return "\n".join(lines)

    def fields(self, definition: str) -> Iterator[Field]:
        """Yield the keys of an object, first those that surround a variant."""
        for schema in [*self.variant(definition), self.definitions[definition]]:
            required = schema.get("required", [])
            for name, key in schema.get("properties", {}).items():
                described = words(key) if "description" in key else "Which line it is."
                # A Python keyword cannot be the name of a field.
                field = f"{name}_" if keyword.iskeyword(name) else name
                yield Field(field, self.type(key), described, name in required)

    def variant(self, definition: str) -> list[Schema]:
        """Return the schemas that surround a definition, if it is one of several objects distinguished by a key."""
        found = []
        for schema in self.definitions.values():
            for option in schema.get("oneOf", []):
                if "properties" in schema and option.get("$ref", "").endswith(f"/{definition}"):
                    found += [{key: schema[key] for key in ("properties", "required")}, option]
        return found

    def type(self, schema: Schema) -> str:
        """Return the type of a value."""
        if "$ref" in schema:
            return self.names[name(schema["$ref"])]
        if "const" in schema:
            return f"Literal[{schema['const']!r}]"
        if "anyOf" in schema:
            return " | ".join(self.type(option) for option in schema["anyOf"])
        kinds: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return " | ".join(self.of_kind(kind, schema) for kind in kinds)

    def of_kind(self, kind: str, schema: Schema) -> str:
        """Return the Python type for one JSON type."""
        if kind == "array":
            if "prefixItems" in schema:
                return f"tuple[{', '.join(self.type(item) for item in schema['prefixItems'])}]"
            return f"tuple[{self.type(schema['items'])}, ...]" if "items" in schema else "tuple[()]"
        if kind == "object":
            return f"dict[str, {self.type(schema['additionalProperties'])}]"
        return SCALARS[kind]


def name(reference: str) -> str:
    """Return the name of the definition that a reference points to."""
    return reference.rsplit("/", 1)[-1]


def docstring(description: str) -> list[str]:
    """Format a description as a docstring."""
    text = " ".join(description.split()).replace("\\", "\\\\")
    lines = textwrap.wrap(text, 108)
    if len(lines) == 1:
        return [f'"""{text}"""']
    return [f'"""{lines[0]}', *lines[1:], '"""']


def indented(lines: list[str]) -> list[str]:
    """Indent lines for the body of a class."""
    return [f"    {line}" if line else "" for line in lines]


def schema() -> Schema:
    """Return the schema of all commands."""
    command = [os.environ.get("MEMVIZ_BINARY", "memviz"), "schema"]
    found: Schema = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def formatted(text: str) -> str:
    """Format text with ruff."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=True).stdout


def main() -> int:
    """Write the file, or compare it with the existing one."""
    parser = argparse.ArgumentParser(description="Writes torch_memviz/answers.py from memviz schema.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    text = formatted(Generator(schema()).module())
    if not arguments.check:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET}: does not match the binary; run python tools/generate_answers.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
