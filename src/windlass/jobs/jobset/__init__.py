"""JobSet (``jobset.x-k8s.io``): child Jobs, policies, gangs by stage. Pure."""
