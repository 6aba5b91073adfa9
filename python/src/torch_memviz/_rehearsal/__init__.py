"""`rehearse`: runs PyTorch's CUDA build on a machine without a GPU. Nothing here is imported unless it is used."""
