"""Translator of generation jobs (AIGCJob): driver, workers, pods, status; pure."""
