"""Probes and lifecycle hooks."""
