"""Files of a pod: volumes, generated files, and programs on its PATH."""
