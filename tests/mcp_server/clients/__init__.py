"""Real clients, each run by the Python of its own environment: SCRIPT URL COMMAND…; prints what it saw, as JSON."""
