#!/usr/bin/env python3
"""Makes a large profiler trace out of a small one, for measuring.

    python3 benches/enlarge_trace.py IN.json.gz OUT.json MEGABYTES

The events are repeated, in the layout in which PyTorch wrote them, until the file has the size asked for. Times move on
from one repetition to the next, ids and sequence numbers go up. Blocks that a repetition finds and frees are those that
the one before has left, so the result is a history that the allocator could have written.
"""
import gzip
import json
import re
import sys

IDS = ("External id", "Record function id", "Sequence number", "Ev Idx", "Python id", "Python parent id", "id")
NUMBER = re.compile(r'("(?:ts|Addr|%s)": )(-?\d+(?:\.\d+)?)' % "|".join(IDS))


def handed_over(events):
    """For blocks that are freed without having been allocated: a block of the same size that is left at the end."""
    memory = sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"])
    live, found = {}, []
    for args in (e["args"] for e in memory):
        key = args["Device Type"], args["Addr"]
        if args["Bytes"] > 0:
            live[key] = args["Bytes"]
        elif live.pop(key, None) is None:
            found.append((key, -args["Bytes"]))
    by_size = {}
    for key, size in live.items():
        by_size.setdefault((key[0], size), []).append(key[1])
    return {key[1]: by_size[key[0], size].pop() for key, size in found}


def main():
    source, target, megabytes = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with gzip.open(source, "rt") as file:
        text = file.read()
    events = json.loads(text)["traceEvents"]
    times = [e["ts"] for e in events if "ts" in e]
    span = round(max(e["ts"] + e.get("dur", 0) for e in events if "ts" in e) - min(times)) + 10
    replaced = handed_over(events)
    start = text.index("[", text.index('"traceEvents"')) + 1
    end = text.rindex("]")
    head, body, tail = text[:start], text[start:end], text[end:]

    # Literal text and numbers in turn, so that a repetition is a matter of joining.
    parts, at, freed = [], 0, set()
    first_free = {}
    for event in sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"]):
        address = event["args"]["Addr"]
        if event["args"]["Bytes"] < 0 and address in replaced and address not in freed:
            first_free[event["args"]["Ev Idx"]] = address
        freed.add(address)
    for number in NUMBER.finditer(body):
        parts.append(body[at:number.end(1)])
        key, value = number.group(1)[1:-3], number.group(2)
        at = number.end()
        if key == "Addr":
            # The event's own number is in the same object, before or after it.
            object_end = body.index("}", at)
            object_start = body.rindex("{", 0, at)
            index = int(re.search(r'"Ev Idx": (\d+)', body[object_start:object_end]).group(1))
            parts.append((key, replaced[first_free[index]] if index in first_free else value, value))
        else:
            parts.append((key, value, value))
    rest = body[at:]

    with open(target, "w") as file:
        file.write(head)
        repetition, size = 0, 0
        while size < megabytes * 1e6:
            shift, ids = span * repetition, 1_000_000 * repetition
            out = ["," if repetition else ""]
            for part in parts:
                if isinstance(part, str):
                    out.append(part)
                    continue
                key, later, value = part
                if key == "Addr":
                    out.append(str(later if repetition else value))
                elif key == "ts":
                    whole, _, fraction = value.partition(".")
                    out.append(f"{int(whole) + shift}{'.' if fraction else ''}{fraction}")
                else:
                    out.append(str(int(value) + ids if int(value) >= 0 else value))
            out.append(rest)
            chunk = "".join(out)
            file.write(chunk)
            size += len(chunk)
            repetition += 1
        file.write(tail)


if __name__ == "__main__":
    main()
