"""Life cycle of a pod: state machine, events, probe results, status. Pure."""
