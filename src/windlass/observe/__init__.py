"""Metrics, events and alerts."""
