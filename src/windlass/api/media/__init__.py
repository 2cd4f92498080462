"""Segments of media: their times, what lies before one, and the context that it gets."""
