"""What a worker is made of: from a message taken to its end written."""
