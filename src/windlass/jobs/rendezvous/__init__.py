"""World size of elastic jobs, and the rendezvous of ``torchrun`` that is told it; pure."""
