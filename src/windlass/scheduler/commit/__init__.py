"""Commit of decisions: pre-bind, bind, evict, device reservations, other schedulers."""
