"""Notices of nodes: spot machines that end soon, and nodes that have become slow."""
