"""Pending groups: classes of waiting groups, and capacity if tasks were evicted."""
