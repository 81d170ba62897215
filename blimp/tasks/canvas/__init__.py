"""What follows a task's end."""
