"""Simulation: sim, plan, what-if, defrag."""
