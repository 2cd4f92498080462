"""Records that the scheduler stores in annotations."""
