"""The line printed when a recording ends."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from .._binary import MemvizError, run
from .sizes import shown


def summary(path: Path) -> str:
    """Return one line with the highest peak, the code that holds most of it, and the command to run next."""
    asks = f"memviz {shlex.quote(str(path))}"
    try:
        answer = json.loads(run(["peak", "--top=1", "--format=json", "--", str(path)]))
    except (MemvizError, OSError) as error:
        return f"memviz: recorded {path}; {error}"
    devices = [device for device in answer["devices"] if device["maxima"]["allocated_bytes"] > 0]
    if not devices:
        return f"memviz: recorded {path}: nothing was allocated on a GPU"
    device = max(devices, key=lambda device: int(device["maxima"]["allocated_bytes"]))
    # If the start of the history was lost, the true peak may be higher.
    bound = "" if device["complete_history"] else " or more"
    peak = shown(device["maxima"]["allocated_bytes"])
    rows = device["attribution"]["rows"]
    most = f", most at {rows[0]['label']} ({shown(rows[0]['bytes'])})" if rows else ""
    return f"memviz: recorded {path}: device {device['device']} peaks at {peak}{bound}{most}; see: {asks}"
