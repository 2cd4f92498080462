"""Kinds of jobs that the commands know."""
