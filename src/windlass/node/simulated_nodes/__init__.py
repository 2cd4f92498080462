"""Simulated nodes: their pods take time, but run nothing."""
