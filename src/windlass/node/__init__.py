"""The node agent: runs pods as processes of this machine."""
