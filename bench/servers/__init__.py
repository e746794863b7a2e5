"""The same tool behind each MCP server; each module runs as a program: MODULE stdio|PORT [TOOLS]."""
