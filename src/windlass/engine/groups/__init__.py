"""Groups, their tasks and parts, and what they ask for next."""
