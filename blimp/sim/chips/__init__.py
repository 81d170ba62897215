"""See the package table in docs/architecture.md."""
