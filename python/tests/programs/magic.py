"""Records notebook cells, one of which runs out of memory."""

from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "torch_memviz")
shell.run_cell_magic("memviz", "-o cell.pickle --top 3", "import torch\nheld = torch.empty(8 << 20, device='cuda')")
shell.run_cell_magic("memviz", "--by category", "torch.empty(1 << 40, device='cuda')")
print(*sorted(path.name for path in Path().glob("*.pickle")))
