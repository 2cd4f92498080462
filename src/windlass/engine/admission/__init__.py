"""Who waits, in which order, and who has the last word."""
