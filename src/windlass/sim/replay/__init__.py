"""Replay of traces."""
