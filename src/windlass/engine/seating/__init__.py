"""The cards of the rows of the node table, for classes of tasks."""
