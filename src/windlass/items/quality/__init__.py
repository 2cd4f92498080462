"""Scorers of outputs. A score is a number from 0 to 100."""
