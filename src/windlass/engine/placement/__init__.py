"""Placement of the next tasks of a group on nodes and topology domains."""
