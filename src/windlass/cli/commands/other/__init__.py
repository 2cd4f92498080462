"""Commands about Windlass itself."""
