"""Time-sharing: attained service and ranks of groups."""
