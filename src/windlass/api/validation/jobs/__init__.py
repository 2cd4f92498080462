"""Validation of job kinds of other projects."""
