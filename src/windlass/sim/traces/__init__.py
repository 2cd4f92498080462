"""Readers of traces: lines of text in, jobs out. One file per format."""
