"""`python -m torch_memviz`: the same as `memviz`."""

import sys

from ._binary import main

sys.exit(main())
