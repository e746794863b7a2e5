"""The MCP server: every client can use a keep."""
