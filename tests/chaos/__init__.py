"""Faults under load: parts of the box are killed at random moments, and nothing may be lost.

``make chaos`` runs all rounds and writes the report; ``make test`` runs a few seeded ones.
"""
