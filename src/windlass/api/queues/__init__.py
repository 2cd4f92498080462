"""The tree of queues: what its levels leave to one another, and the order of opening."""
