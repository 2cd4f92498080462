"""The accounts of those who share time."""
