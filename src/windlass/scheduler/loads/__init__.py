"""Measured loads of nodes."""
