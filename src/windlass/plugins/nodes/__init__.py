"""Plugins that filter and score nodes."""
