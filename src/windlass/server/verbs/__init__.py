"""Verbs of the API: one module each."""
