"""Optional features of pods and groups, each registered as a contributor."""
