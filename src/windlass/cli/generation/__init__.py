"""Generation jobs for commands: their manifest, their progress, their driver."""
