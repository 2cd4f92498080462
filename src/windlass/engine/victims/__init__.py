"""Victims: sets of tasks that are evicted together, victim pools, disruption budgets."""
