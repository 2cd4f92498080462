"""Runtimes that process rows: each is loaded once by a worker."""
