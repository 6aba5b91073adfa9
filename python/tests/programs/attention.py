"""Attention in half precision, forward and backward. PyTorch selects the backend by the GPU."""

import torch

heads = torch.randn(2, 12, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()
