"""Installation in a cluster: install, upgrade, adopt, bind guard."""
