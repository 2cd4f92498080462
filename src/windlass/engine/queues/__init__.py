"""The queue tree, its sums and its shares."""
