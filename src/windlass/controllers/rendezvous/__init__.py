"""Announcement of worlds to the rendezvous of elastic jobs in a cluster."""
