"""Checks of ``windlass doctor``."""
