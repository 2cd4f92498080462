"""Reservations: room kept for starts that are known."""
