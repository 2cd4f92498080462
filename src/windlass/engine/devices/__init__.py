"""Device tables of a node: shares, MIG instances, DRA devices."""
