"""Node properties: topology, NUMA, volumes."""
