"""The end of a namespace: its content first, then the namespace itself."""
