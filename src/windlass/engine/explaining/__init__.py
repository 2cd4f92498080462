"""Why a group waits, and what would help."""
