"""Signing in to upstream servers with OAuth 2.1, as MCP asks for it; every document of theirs is hostile."""
