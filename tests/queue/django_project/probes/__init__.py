"""Tasks that show which connection they have."""
