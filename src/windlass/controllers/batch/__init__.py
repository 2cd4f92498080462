"""Controller of ``batch/v1`` Jobs."""
