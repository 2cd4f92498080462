"""Device allocation: counts and picks devices of nodes for task classes."""
