"""Scheduling plugins on the command line: list, load from a file, try."""
