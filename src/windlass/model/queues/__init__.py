"""Queues and quotas, and the import of Kueue's queues."""
