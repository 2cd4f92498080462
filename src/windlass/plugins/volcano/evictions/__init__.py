"""Volcano plugins that select or protect victims."""
