"""Requests: routing, parameters, negotiation, users."""
