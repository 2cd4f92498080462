"""Reconcilers, one folder each, independent of one another."""
