"""Policies of the literature, as published, to measure others against. No configuration offers them."""
