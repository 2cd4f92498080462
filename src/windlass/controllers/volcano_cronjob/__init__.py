"""Reconciler of Volcano's CronJobs (``batch.volcano.sh``)."""
