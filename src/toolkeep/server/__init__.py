"""The keep over HTTP: an API with a document of itself, MCP, health and metrics, for whoever has a token."""
