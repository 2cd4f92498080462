"""Jobs of all kinds as one model: roles, success rule, restarts, life cycle. Pure."""
