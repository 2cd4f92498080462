"""Commands for queues, nodes and the installation in a cluster."""
