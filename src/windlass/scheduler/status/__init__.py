"""Status of pods, groups and queues: what is written, and when."""
