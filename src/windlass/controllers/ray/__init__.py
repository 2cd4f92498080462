"""Controllers of Ray's kinds."""
