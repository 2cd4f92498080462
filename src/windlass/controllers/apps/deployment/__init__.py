"""Deployment: ReplicaSets by pod template, and the rollout from one to the next."""
