"""The commands of `blimp`, a file for what a person is about to do."""
