"""Reads files as Python does, and prints a line of JSON for each: the entries of its traces, or why Python
refuses it."""

import gzip
import io
import json
import pickle
import sys
import warnings
import zipfile

warnings.simplefilter("ignore")


class Opaque:
    """What an object of any class is here: nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        pass


class Reader(pickle.Unpickler):
    """Builds no object of a class that a file names."""

    def find_class(self, module, name):
        return Opaque

    def persistent_load(self, number):
        return Opaque()


def unpacked(data):
    """The pickle in a file."""
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            (name,) = archive.namelist()
            return archive.read(name)
    return data


def entries(data):
    """Action, address and size of every entry, by trace."""
    snapshot = Reader(io.BytesIO(unpacked(data))).load()
    address = {"oom": "device_free"}
    return [
        [[entry["action"], entry.get(address.get(entry["action"], "addr"), 0), entry.get("size", 0)] for entry in trace]
        for trace in snapshot["device_traces"]
    ]


for path in sys.argv[1:]:
    with open(path, "rb") as file:
        content = file.read()
    try:
        print(json.dumps(entries(content)))
    except Exception as error:  # Whatever Python says of a file that it refuses.
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"}))
