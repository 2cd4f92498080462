"""The pure scheduler: deltas in, decisions out. No I/O, no clock, no wire objects."""
