"""Jobs: run, submit, logs, ps, explain."""
