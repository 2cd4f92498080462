"""Preemption: victim search, solver, relocation of victims."""
