"""CustomResourceDefinitions of the embedded server: names that become free, and removal."""
