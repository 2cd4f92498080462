"""Dry run of the engine over a dump of a cluster."""
