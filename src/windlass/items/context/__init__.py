"""Context that a segment of a stream gets from the segments before it."""
