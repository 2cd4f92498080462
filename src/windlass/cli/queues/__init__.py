"""Queues: tables, settings, checks."""
