"""Ray's kinds: clusters as gangs, jobs that run in them, services."""
