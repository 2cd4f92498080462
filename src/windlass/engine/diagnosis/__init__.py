"""Diagnosis: why a group is pending, and what would help."""
