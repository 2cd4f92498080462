"""Protocols of upgraded connections."""
