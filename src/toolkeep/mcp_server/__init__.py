"""The MCP server: the tools of a keep over stdio and HTTP. `toolkeep.mcp` is its public module."""
