"""What may be asked to go, and which budgets stand in the way."""
