"""Volcano Jobs: a gang of pods with a life cycle, restarts by policy, and plugins."""
