"""Finds which variables, attributes and autograd nodes keep the memory of tensors."""
