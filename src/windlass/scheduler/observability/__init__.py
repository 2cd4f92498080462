"""Traces and life-cycle counters of groups."""
