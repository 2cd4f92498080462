"""What nodes say to tasks of equal needs."""
