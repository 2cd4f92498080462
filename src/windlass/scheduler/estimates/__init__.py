"""Estimates: learned run times and starts of pending groups."""
