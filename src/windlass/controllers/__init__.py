"""Reconcilers, one package each, independent of one another."""
