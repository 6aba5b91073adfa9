"""Starts a command for `memviz rehearse`: `python -m torch_memviz._rehearsal OPTIONS COMMAND...`, OPTIONS as JSON.

Without a command, it only checks whether a rehearsal is possible.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

from . import library
from .gpus import RehearsalError
from .start import prepare

#: `PR_SET_PDEATHSIG` on Linux.
PARENT_DEATH_SIGNAL = 1


def main() -> int:
    """Set up the rehearsal in the environment, and replace this process with the command. Returns a code on error."""
    options = json.loads(sys.argv[1])
    try:
        reason = library.why_not(bool(options.pop("despite_gpu", False)))
        if reason is not None:
            raise RehearsalError(reason)
        prepare(**options)
        if len(sys.argv) == 2:
            return 0
        # If memviz is terminated, terminate the command as well, which then writes its recording.
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)
        os.execvp(sys.argv[2], sys.argv[2:])
    except (RehearsalError, OSError) as error:
        print(f"memviz: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
