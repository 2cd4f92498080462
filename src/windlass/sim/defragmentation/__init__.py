"""Defragmentation: moves of running pods that make room for larger ones."""
