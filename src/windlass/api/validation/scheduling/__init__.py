"""Validation of queues, groups, topology and claims."""
