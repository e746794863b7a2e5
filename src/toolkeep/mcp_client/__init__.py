"""MCP client: tools of upstream MCP servers, sanitized and pinned like any import, over stdio and HTTP."""
