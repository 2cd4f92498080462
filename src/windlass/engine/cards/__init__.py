"""The cards of one node: parts, slices, and which of them a pod gets."""
