"""The edge where facts come in: strict YAML, schemas, the registry of bundled specs."""
