"""Commands for jobs."""
