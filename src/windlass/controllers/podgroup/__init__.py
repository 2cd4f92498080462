"""PodGroups for pods of Volcano's scheduler that have none."""
