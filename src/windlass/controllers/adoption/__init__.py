"""Gangs of Volcano's queues, handed over to Windlass and back."""
