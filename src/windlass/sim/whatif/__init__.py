"""What-if: a cluster played forward, as it is and changed."""
