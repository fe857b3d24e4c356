"""Triton kernels, one operation a file, each beside its torch reference. Imports nothing of app or backends."""
