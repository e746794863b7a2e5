"""Tools from OpenAPI documents: each operation becomes a tool, or is refused with a reason."""
