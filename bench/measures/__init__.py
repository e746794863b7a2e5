"""What is measured, one a file."""
