"""What scheduling claims of the field come to on published traces: *claim / baseline / Windlass*, one by one.

Every figure comes out of the product's own replay or packing; nothing is stored. Pure: traces are handed in as lines.
"""
