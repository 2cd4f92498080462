"""Plugins for queues: limits, guarantees, order, protection of running work."""
