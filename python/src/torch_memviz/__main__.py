"""`python -m torch_memviz`: the same as `memviz`, and `python -m torch_memviz run` records a program as it is."""

import sys

if len(sys.argv) > 1 and sys.argv[1] == "run":
    from ._recording.program import main
else:
    from ._binary import main

sys.exit(main())
