"""Plugins that score devices: fragmentation, scarcity, GPU-aware placement."""
