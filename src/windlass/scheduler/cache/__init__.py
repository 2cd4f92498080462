"""Filling of the model: initial synchronisation and event handlers."""
