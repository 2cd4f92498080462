"""Reconciler of generation jobs (``kurator.dev/v1alpha1`` AIGCJob)."""
