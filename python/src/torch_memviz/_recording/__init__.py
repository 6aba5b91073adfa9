"""Recordings of PyTorch's caching allocator, made by PyTorch itself."""
