"""Making room: victims, searches and moves."""
