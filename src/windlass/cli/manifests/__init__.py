"""Manifests: reading, three-way merge, applying."""
