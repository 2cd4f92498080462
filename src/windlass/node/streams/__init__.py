"""Streams into running containers: commands, terminals, ports."""
