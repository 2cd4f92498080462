"""Queueing: enqueue, queue order, permit."""
