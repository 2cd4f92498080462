"""PodGroups of five APIs, their members and their status."""
