"""Controllers of ``apps/v1``, as kube-controller-manager runs them."""
