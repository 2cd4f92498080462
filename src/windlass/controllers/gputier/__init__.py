"""Default for the node label ``gpu-tier``."""
