"""OAuth 2.1 client for upstream MCP servers: discovery, registration, PKCE, tokens. Their documents are
hostile."""
