"""Volcano plugins that divide the cluster among queues and limit them."""
