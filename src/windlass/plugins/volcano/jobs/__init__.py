"""Volcano plugins that order jobs and tasks, or place the tasks of one job."""
