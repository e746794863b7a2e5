"""The HTTP layer below the API and the web page."""
