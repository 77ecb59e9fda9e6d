"""What is written: sentences as vectors."""
