"""The simulator: the product's own engine under a virtual clock, fed by traces.

Pure: it works on its inputs (lines of text, jobs, nodes, a state). Callers open the files.
"""
