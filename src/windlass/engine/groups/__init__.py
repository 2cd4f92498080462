"""Groups, their tasks and sub-groups, and their next tasks."""
