"""Volcano's policies by name: orders, and voters of :mod:`windlass.spi.tiers`."""
