"""ResourceClaims of pods: made of their templates, given back when their pods have ended."""
