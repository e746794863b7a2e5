"""MCP protocol: JSON-RPC messages and protocol versions, shared by client and server."""
