"""Feasibility: task classes, and how many tasks of a class each node can take."""
