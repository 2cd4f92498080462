"""Kinds of templates that are written as containers and scripts before their pod is built."""
