"""Authentication: certificates, tokens, kubeconfig."""
