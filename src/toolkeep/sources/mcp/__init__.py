"""Tools of other MCP servers: listed, cleaned and pinned like any import, and called in both eras."""
