"""Controller of workflows: it runs what the pure core of ``windlass.workflow`` decides."""
