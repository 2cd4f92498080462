"""Output of jobs: read, followed, kept."""
