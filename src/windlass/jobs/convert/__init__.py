"""Conversion of job manifests between kinds, with what is lost."""
