"""Backfill: reservations, forecast of free capacity, aging."""
