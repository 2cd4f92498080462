"""Packing and defragmentation of a cluster."""
