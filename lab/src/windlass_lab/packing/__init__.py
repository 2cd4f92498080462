"""Packing of a cluster with pods that never leave, and its upper bounds."""
