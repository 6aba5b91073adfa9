"""`rehearse`: PyTorch's CUDA build on a machine without a GPU. Nothing of it is loaded unless it is asked for."""
