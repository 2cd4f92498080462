"""The simulator: the product's own engine under a virtual clock, fed by traces.

Pure: it works on what is handed to it (lines of text, jobs, nodes, a state); who calls it opens files.
"""
