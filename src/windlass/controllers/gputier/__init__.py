"""The label ``gpu-tier`` of nodes, where nobody has set it."""
