"""Families of job kinds of other projects, and which of them Windlass operates in a cluster."""
