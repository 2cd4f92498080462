"""Helpers without domain words: clock, randomness, back-off, files, time stamps, tasks."""
