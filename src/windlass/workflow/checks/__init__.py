"""Checks of workflows before anything begins. Pure."""
