"""Wire forms of objects: decoding, protobuf, patch types, schemas, field review."""
