"""Workflows: graphs of tasks in Argo's words, advanced by events. Pure."""
