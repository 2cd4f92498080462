"""Reproduction of published experiments and packing tables with Windlass' simulator."""
