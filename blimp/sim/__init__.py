"""See the package table in README.md."""
