"""Running pods: worker, launcher, launch specification, volumes."""
