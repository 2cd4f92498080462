"""Services on this node: proxies of their addresses and ports, names and environment."""
