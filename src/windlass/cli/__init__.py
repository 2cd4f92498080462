"""The windlass command, one file per command."""
