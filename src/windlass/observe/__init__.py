"""Metrics, logs and traces of the services."""
