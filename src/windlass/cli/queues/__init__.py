"""Tables and checks of queues."""
