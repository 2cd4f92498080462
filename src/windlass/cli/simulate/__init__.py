"""Simulation on the command line: sim, plan, what-if, defrag."""
