"""Tests that the JSON output of memviz matches the JSON Schema that it prints."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from torch_memviz._binary import binary

from .conftest import FIXTURES, ROOT

#: Budgets that are met, exceeded and unknown.
CHECK = ("--max-peak=1B", "--max-reserved=1TiB", "--max-fragmentation=0.1%", "--max-leak=1B", "--max-site=.=1B")

#: Arguments that make each command write every part of its answer. A command missing here fails the first test.
ANSWERS: dict[str, list[tuple[str, ...]]] = {
    "info": [()],
    "peak": [(), ("--by=operator",), ("--to=entry:2",), ("--each=phase",), ("--each=annotation",)],
    "blocks": [()],
    "fragmentation": [(), ("--over-time", "--points=3")],
    "oom": [(), ("--by=stack",)],
    "leaks": [("--capacity=80GiB",)],
    "ledger": [("--capacity=80GiB",)],
    "nsys": [()],
    "checkpoint": [(), ("--top=1",)],
    "simulate": [()],
    "fit": [("--vary=batch=4,8", "--capacity=80GiB"), ("--capacity=3GiB",)],
    "fix": [("--source=.",)],
    "diff": [(), ("--by=function",)],
    "check": [CHECK],
    "ranks": [()],
    "triage": [()],
    "timeline": [("--by=category", "--points=40"), ("--to=entry:2",)],
}

#: Keys that are optional in answers, and objects whose keys depend on the recording.
OPTIONAL = (
    "/bounds",
    "/window",
    "/comparison",
    "/programs",
    "/failures",
    "/time_us",
    "/code",
    "/each",
    "/ranges",
    "/left_out_bytes",
    "/bound",
    "/operators",
    "/over_time",
    "/kinds",
    "/actions",
    "/settings/other",
    "/advice/0",
    "/evidence/0",
    "/categories/rows/0/evidence",
    "/ooms/0/fit",
    "/ooms/0/peak",
    "/basis",
    "/pid",
    "/signature",
    "/sites",
    "/reason",
    "/pattern",
    "/limit_share",
    "/measured_share",
    "/matching_sites",
)

PROFILES = [FIXTURES.parent / "nsys" / name for name in ("training.sqlite", "unfreed.sqlite")]
SNAPSHOTS = sorted(path / "snapshot.pickle.gz" for path in FIXTURES.iterdir() if (path / "snapshot.pickle.gz").exists())
TRACES = [
    path
    for path in sorted((FIXTURES.parent / "traces" / "profiler_traces").iterdir())
    if not path.name.startswith("truth")
]

#: Recordings of every kind, and broken files.
RECORDINGS = [
    *[path for path in SNAPSHOTS if not path.parent.name.startswith("big")][::4],
    *(FIXTURES / name / "snapshot.pickle.gz" for name in ("oom", "fragmented", "leak_slow", "state_only", "empty")),
    FIXTURES / "ring" / "snapshot.pickle.gz",
    *sorted((FIXTURES.parent / "malformed").iterdir()),
    *TRACES,
]


def memviz(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the binary."""
    command = [str(binary()), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)


def objects(text: str) -> Iterator[Any]:
    """Return the consecutive objects of an answer."""
    while text := text.lstrip():
        value, end = json.JSONDecoder().raw_decode(text)
        yield value
        text = text[end:]


@cache
def schemas() -> dict[str, Any]:
    """Return the schema of each command."""
    names = [answer["properties"]["command"]["const"] for answer in json.loads(memviz("schema").stdout)["oneOf"]]
    return {name: json.loads(memviz("schema", name).stdout) for name in names}


@cache
def validator(command: str) -> Any:
    """Return a validator for the answers of one command, or of all."""
    return jsonschema_rs.Draft202012Validator(schemas()[command] if command else json.loads(memviz("schema").stdout))


def test_every_command_has_a_schema_and_no_other() -> None:
    assert sorted(schemas()) == sorted(ANSWERS)
    # Every command with `--format json` has a schema.
    words = (line.split() for line in memviz("help").stdout.splitlines() if line.startswith("  "))
    for command in (found[0] for found in words if found and found[0].isalpha() and found[0].islower()):
        writes_json = "json" in memviz(command, "--help").stdout
        assert (command in schemas()) == (writes_json and command != "schema"), command
    for schema in schemas().values():
        jsonschema_rs.meta.validate(schema)
    assert "expected one of triage, info, peak" in memviz("schema", "frobnicate").stderr


@pytest.mark.parametrize("command", sorted(ANSWERS))
def test_what_every_command_writes_is_valid(command: str) -> None:
    valid = 0
    for path in PROFILES if command == "nsys" else RECORDINGS:
        for arguments in ANSWERS[command]:
            # Commands that compare take two recordings.
            is_pair = command == "diff" or any(word.startswith("--vary") for word in arguments)
            first = [FIXTURES / "multi_gpu" / "snapshot.pickle.gz"] if is_pair else []
            done = memviz(command, "--format=json", *arguments, *first, path)
            # Exceeded budgets are also an answer.
            if not done.stdout or (done.returncode != 0 and command not in ("check", "fix")):
                continue
            for answer in objects(done.stdout):
                for each in (validator(command), validator("")):
                    each.validate(answer)
            valid += 1
    # Only a few recordings have samples of whole devices, and profiles of Nsight Systems are few.
    assert valid > {"ledger": 4, "nsys": 1}.get(command, 10)


@pytest.mark.parametrize("command", sorted(ANSWERS))
def test_what_no_command_writes_is_not_valid(command: str) -> None:
    """A schema that accepts everything would pass the test above."""
    fit = FIXTURES.parent / "fit"
    names = {"diff": ("gpt_train", "gpt_train_ckpt"), "leaks": ("leak",), "checkpoint": ("gpt_train_ckpt_every2",)}
    inputs = [FIXTURES / name / "snapshot.pickle.gz" for name in names.get(command, ("oom",))]
    options: tuple[str, ...] = () if command in ("info", "triage", "simulate") else ("--top=2",)
    if command == "check":
        options = CHECK
    elif command == "ledger":
        options, inputs = (), [FIXTURES.parent / "ledger" / "snapshot.pickle.gz"]
    elif command == "fix":
        options = (f"--source={FIXTURES}",)
    elif command == "nsys":
        options, inputs = (), [PROFILES[0]]
    elif command == "fit":
        options = ("--vary=batch=4,8", "--capacity=4GiB", "--top=2")
        inputs = [fit / f"minigpt_batch{size}" / "snapshot.pickle.gz" for size in (4, 8)]
    answer = next(objects(memviz(command, "--format=json", *options, *inputs).stdout))
    is_valid = validator(command).is_valid
    assert is_valid(answer)
    places = list(keys(answer))
    assert len(places) > 20
    for place in places:
        pointer, parent = f"/{'/'.join(map(str, place))}", f"/{'/'.join(map(str, place[:-1]))}"
        other = copy.deepcopy(answer)
        held(other, place[:-1])[place[-1]] = [[None]]
        assert not is_valid(other), f"{pointer} may be anything"
        if any(parent.endswith(optional) or pointer.endswith(optional) for optional in OPTIONAL):
            continue
        del held(other, place[:-1])[place[-1]]
        assert not is_valid(other), f"{pointer} may be missing"
    for key, value in {"command": "other", "schema_version": 99}.items():
        assert not is_valid({**answer, key: value}), f"another {key}"


def held(value: Any, place: tuple[str | int, ...]) -> Any:
    """Return the value at a path."""
    for step in place:
        value = value[step]
    return value


def keys(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every key of every object. The first item represents each list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*at, key)
            yield from keys(item, (*at, key))
    elif isinstance(value, list) and value:
        yield from keys(value[0], (*at, 0))
