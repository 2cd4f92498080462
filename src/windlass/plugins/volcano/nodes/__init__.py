"""Volcano plugins that filter and score nodes."""
