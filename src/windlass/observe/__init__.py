"""Metrics and logs: what the services tell about themselves."""
