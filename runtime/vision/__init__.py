"""What is seen: the pixels that encoders take, and reading text."""
