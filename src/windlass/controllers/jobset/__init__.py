"""Controller of JobSets."""
