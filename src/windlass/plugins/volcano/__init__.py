"""Volcano's policies by their names, each a voter of :mod:`windlass.spi.tiers` or an order."""
