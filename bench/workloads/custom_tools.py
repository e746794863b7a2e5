"""Fifty custom tools as a project's `.agent/config.yml` would define them; they run and grant nothing."""

from typing import Any


def custom_tools(count: int = 50) -> list[dict[str, Any]]:
    """Definitions as data, written by hand."""
    return [_custom_tool(number) for number in range(count)]


def _custom_tool(number: int) -> dict[str, Any]:
    return {
        "name": f"look_up_orders_{number}",
        "version": "1.0.0",
        "category": "custom",
        "description": f"Look up the orders of customers in region {number}.",
        "parameters": {
            "type": "object",
            "properties": {
                "customer": {"type": "string", "description": "Name of the customer", "maxLength": 100},
                "state": {
                    "type": "string",
                    "description": "State of the orders",
                    "enum": ["open", "paid", "sent"],
                    "default": "open",
                },
                "limit": {"type": "integer", "description": "How many at most", "minimum": 1, "maximum": 500},
                "tags": {
                    "type": "array",
                    "description": "Words that the orders carry",
                    "items": {"type": "string", "maxLength": 50},
                    "maxItems": 20,
                },
            },
            "required": ["customer"],
            "additionalProperties": False,
        },
    }
