"""Workflows from the command line: their nodes, pictures and requests."""
