"""Volcano Queues: the two that must exist, opening and closing, counts of their groups."""
