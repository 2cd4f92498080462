"""Simulation of a cluster into the future, unchanged and changed (what-if)."""
