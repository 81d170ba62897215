"""The commands of the queue's command line, one file for those of a kind."""
