"""Helpers without domain words: clock, randomness, back-off, atomic files, time stamps, tasks."""
