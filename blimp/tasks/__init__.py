"""What the ship can be asked to do: a file a kind of task, and the client that sends them."""
