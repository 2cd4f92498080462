"""Reconciler of the number of workers of AIGCJobs (``spec.autoscale``)."""
