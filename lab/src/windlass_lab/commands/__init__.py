"""Commands of ``windlass sim`` that this package adds."""
