"""ResourceClaims of pods: created from templates, deallocated when their pods finished."""
