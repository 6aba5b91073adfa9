#!/usr/bin/env python3
"""Makes a large snapshot out of a small one, for measuring.

    python3 benches/enlarge.py IN.pickle OUT.pickle TIMES

The history of device 0 is repeated TIMES times. Between two repetitions every live block is freed and every segment is
given back, as if the program had let go of everything and started over, so the result is a history that the allocator
could have written. Needs a complete recording without expandable segments. Load only files that you trust: this
script, unlike memviz, unpickles them.
"""
import pickle
import sys


def letting_go(snapshot, time_us):
    """Entries that free whatever the final segments hold."""
    like = {k: v for k, v in snapshot["device_traces"][0][0].items() if k not in ("action", "addr", "size", "time_us")}
    like["frames"] = []
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                continue
            actions = ["free_requested"] if block["state"] == "active_allocated" else []
            for action in actions + ["free_completed"]:
                yield {"action": action, "addr": block["address"], "size": block["requested_size"],
                       "time_us": time_us, **like}
        yield {"action": "segment_free", "addr": segment["address"], "size": segment["total_size"],
               "time_us": time_us, **like}


def main():
    source, target, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(source, "rb") as file:
        snapshot = pickle.load(file)
    trace = snapshot["device_traces"][0]
    start, end = trace[0]["time_us"], trace[-1]["time_us"]
    span = end - start + 2
    large = []
    for repetition in range(times):
        shift = repetition * span
        large.extend({**entry, "time_us": entry["time_us"] + shift} for entry in trace)
        if repetition + 1 < times:
            large.extend(letting_go(snapshot, end + shift + 1))
    snapshot["device_traces"] = [large]
    with open(target, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)
    print(f"{target}: {len(large)} entries")


main()
