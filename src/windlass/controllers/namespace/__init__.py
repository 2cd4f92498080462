"""Deletion of namespaces: first their content, then the namespace."""
