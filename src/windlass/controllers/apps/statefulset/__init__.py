"""StatefulSet: pods with a stable name, order and storage."""
