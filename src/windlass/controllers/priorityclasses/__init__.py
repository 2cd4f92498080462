"""The PriorityClasses that are there from the start."""
