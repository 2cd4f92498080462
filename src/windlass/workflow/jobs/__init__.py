"""``job`` templates: jobs of any kind as nodes of a workflow."""
