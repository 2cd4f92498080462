"""Facts about nodes: resources, CPU sets, topology levels, labels of spot capacity, simulated nodes."""
