"""Other spellings on objects that a server without Windlass' admission has let in as they were."""
