"""Benchmarks: each prints figures and ratios against its goal, and asserts nothing about time."""
