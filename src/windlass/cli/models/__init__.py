"""Models on the nodes: lists, fetches and removals from the command line."""
