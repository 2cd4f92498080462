"""Controller of TrainJobs, and the built-in training runtimes."""
