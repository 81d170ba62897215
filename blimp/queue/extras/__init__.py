"""What is loaded if it is asked for, most of it with an extra of its own."""
