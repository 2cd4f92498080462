"""Experiments: *claim / baseline / Windlass* on published traces, one by one.

Every figure comes out of the product's own replay or packing; nothing is stored. Pure: traces are handed in as lines.
"""
