"""`python -m torch_memviz`: the same as `memviz`. `python -m torch_memviz run` records an unmodified program."""

import sys

if len(sys.argv) > 1 and sys.argv[1] == "run":
    from ._recording.program import main
else:
    from ._binary import main

sys.exit(main())
