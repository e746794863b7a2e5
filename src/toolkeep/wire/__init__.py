"""MCP as it is spoken: messages, and what differs between the eras; both sides use it."""
