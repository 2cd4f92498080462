"""Device requests, device annotations, MIG profiles and device selectors (CEL): reading and writing."""
