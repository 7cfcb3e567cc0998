"""Shared by all rooms: parameters as flat vectors, trees of tensors, keyed randomness, checks."""
