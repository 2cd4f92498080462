"""Manifests: reading, three-way merge, apply."""
