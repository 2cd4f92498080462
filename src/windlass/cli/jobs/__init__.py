"""Jobs on the command line: run, submit, logs, ps, explain."""
