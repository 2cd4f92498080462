"""Health of nodes: conditions, taints and evictions, and pods of nodes that are gone."""
