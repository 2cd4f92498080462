"""Installation into a cluster: install, upgrade, adopt, bind guard."""
