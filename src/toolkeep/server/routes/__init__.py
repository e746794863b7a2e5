"""What is served where: one file for each part of the API."""
