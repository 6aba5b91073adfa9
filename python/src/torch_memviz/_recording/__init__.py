"""Records PyTorch's caching allocator with PyTorch's own memory history."""
