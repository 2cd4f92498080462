"""Pods as engine tasks: needs, affinity, device exclusion."""
