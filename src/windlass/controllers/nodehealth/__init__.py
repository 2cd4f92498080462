"""Nodes that fall silent: conditions, taints, evictions; pods of nodes that are gone."""
