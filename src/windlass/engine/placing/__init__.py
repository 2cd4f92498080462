"""From what a group asks for to nodes."""
