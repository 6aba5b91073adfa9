#!/usr/bin/env python3
"""Makes a large snapshot out of a small one, for measuring.

    python3 benches/enlarge.py IN.pickle[.gz] OUT.pickle TIMES [--inline] [--stacks N] [--depth N] [--shuffle] [--devices N]

The history of each device is repeated TIMES times. Between two repetitions the program frees and releases what it
allocated, and allocates again what it had before the recording started, so the result is a history that the allocator
could have written. Needs a recording without expandable segments.

What the bytes look like is what matters to a reader, so they are made as PyTorch makes them: each repetition has
dictionaries and lists of frames of its own, shared by the entries that share them in IN, and strings that IN has afresh
in each entry stay so.
"""
import argparse
import gzip
import pickle
import random

# Where the allocator places memory: far apart for each device.
DEVICE_SPAN = 1 << 44


def arguments():
    parser = argparse.ArgumentParser(description="Makes a large snapshot out of a small one.")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("times", type=int)
    parser.add_argument("--inline", action="store_true",
                        help="compile_context afresh in each entry, as PyTorch 2.7 and later write it")
    parser.add_argument("--stacks", type=int, default=0, help="distinct stacks, about; as many as in IN without it")
    parser.add_argument("--depth", type=int, default=0, help="frames that each stack has at least")
    parser.add_argument("--shuffle", action="store_true", help="stacks in random order instead of one set after another")
    parser.add_argument("--devices", type=int, default=0, help="devices; as many as in IN without it")
    return parser.parse_args()


class PlainValues(pickle.Unpickler):
    """Loads what PyTorch writes, which are plain values, and nothing that would run code."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"expected plain values, found {module}.{name}")


class Stacks:
    """Variants of the stacks of a recording: the same frames, called from elsewhere."""

    def __init__(self, traces, wanted, depth):
        distinct = {tuple(map(id, entry.get("frames") or ())) for trace in traces for entry in trace}
        self.variants = max(1, wanted // max(1, len(distinct)))
        self.callers = [{"filename": "/home/user/train/main.py", "line": 100 + variant, "name": "main"}
                        for variant in range(self.variants)]
        self.outer = [{"filename": f"/home/user/train/outer{level % 7}.py", "line": level, "name": f"outer_{level}"}
                      for level in range(depth)]
        self.depth = depth

    def variant(self, frames, number):
        """A list of its own with the frames of a variant of a stack."""
        frames = list(frames)
        if not frames:
            return frames
        if self.variants > 1:
            frames.insert((len(frames) + 1) // 2, self.callers[number % self.variants])
        return frames + self.outer[:max(0, self.depth - len(frames))]


def afresh(text):
    """The same text in another object, which pickle writes out again."""
    return "".join(list(text))


def is_afresh(trace):
    """Whether each entry has a compile_context of its own."""
    return len({id(entry.get("compile_context")) for entry in trace}) > len(trace) // 2


def going_back(trace, segments, like, time_us):
    """Entries that lead from the final segments back to what existed before the first entry."""
    blocks, reserved = Holdings(), Holdings()
    for entry in trace:
        holdings = reserved if entry["action"].startswith("segment") else blocks
        if entry["action"] in ("alloc", "segment_alloc"):
            holdings.add(entry["addr"])
        elif entry["action"] in ("free_requested", "free_completed", "segment_free"):
            holdings.remove(entry["addr"], entry["size"], is_last=entry["action"] != "free_requested")
    entry = lambda action, addr, size: {"action": action, "addr": addr, "size": size, "time_us": time_us, **like}
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == "inactive" or block["address"] not in blocks.added:
                continue
            actions = ["free_requested"] if block["state"] == "active_allocated" else []
            for action in actions + ["free_completed"]:
                yield entry(action, block["address"], block["requested_size"])
        if segment["address"] in reserved.added:
            yield entry("segment_free", segment["address"], segment["total_size"])
    for action, holdings in ("segment_alloc", reserved), ("alloc", blocks):
        for addr, size in holdings.lost.items():
            yield entry(action, addr, size)


class Holdings:
    """What a trace changes: blocks, or segments, by address."""

    def __init__(self):
        self.added = set()
        self.lost = {}

    def add(self, addr):
        self.added.add(addr)

    def remove(self, addr, size, is_last):
        if addr not in self.added:
            self.lost.setdefault(addr, size)
        elif is_last:
            self.added.remove(addr)


def enlarged(trace, segments, stacks, options):
    """The trace of one device, repeated."""
    start, end = trace[0].get("time_us", 0), trace[-1].get("time_us", 0)
    like = {key: value for key, value in trace[0].items() if key not in ("action", "addr", "size", "time_us")}
    like["frames"] = []
    inline = options.inline or is_afresh(trace)
    large = []
    for repetition in range(options.times):
        shift = repetition * (end - start + 2)
        again = list(trace)
        if repetition + 1 < options.times:
            again += going_back(trace, segments, like, end + 1)
        lists = {}
        for entry in again:
            copy = {**entry}
            if "time_us" in entry:
                copy["time_us"] += shift
            if copy.get("frames") is not None:
                frames = entry["frames"]
                if id(frames) not in lists:
                    number = random.randrange(stacks.variants) if options.shuffle else repetition
                    lists[id(frames)] = stacks.variant(frames, number)
                copy["frames"] = lists[id(frames)]
            if inline and isinstance(copy.get("compile_context"), str):
                copy["compile_context"] = afresh(copy["compile_context"])
            large.append(copy)
    return large


def moved(trace, segments, device):
    """The same history on another device."""
    offset = device * DEVICE_SPAN
    at = lambda record, key: {**record, key: record[key] + offset} if key in record else dict(record)
    blocks = lambda segment: [at(block, "address") for block in segment["blocks"]]
    return ([at(entry, "addr") for entry in trace],
            [{**at(segment, "address"), "device": device, "blocks": blocks(segment)} for segment in segments])


def main():
    options = arguments()
    random.seed(1)
    with (gzip.open if options.source.endswith(".gz") else open)(options.source, "rb") as file:
        snapshot = PlainValues(file).load()
    of_device = lambda device: [segment for segment in snapshot["segments"] if segment["device"] == device]
    devices = [(trace, of_device(device)) for device, trace in enumerate(snapshot["device_traces"])]
    if options.devices:
        first = next(pair for pair in devices if pair[0])
        devices = [moved(*first, device) for device in range(options.devices)]
        snapshot["segments"] = [segment for _, segments in devices for segment in segments]
    stacks = Stacks([trace for trace, _ in devices], options.stacks, options.depth)
    snapshot["device_traces"] = [enlarged(trace, segments, stacks, options) if trace else trace
                                 for trace, segments in devices]
    with open(options.target, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)
    print(f"{options.target}: {sum(map(len, snapshot['device_traces']))} entries")


main()
