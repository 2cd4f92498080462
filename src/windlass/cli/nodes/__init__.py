"""Tables of nodes and devices."""
