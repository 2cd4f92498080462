"""Nodes and GPUs: tables, topology, drain, simulated nodes."""
