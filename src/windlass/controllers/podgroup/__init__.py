"""Groups for pods that ask for Volcano's scheduler and have none."""
