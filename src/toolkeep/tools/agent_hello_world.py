"""`agent_hello_world`: the reference for agent-tool classes, and the smallest useful example of one."""

import json
import logging
from typing import Any

from toolkeep.definitions.tool_context import InvokeResult, ToolContext


class HelloWorldTool:
    """Greets a person by name."""

    TOOL_NAME = "agent_hello_world"
    TOOL_USAGE_METADATA = "Call this when the user asks to be greeted or welcomed, with the user's name."
    TOOL_FIELDS = {  # noqa: RUF012 -- read, never changed
        "category": "general",
        "danger": "safe",
        "side_effects": ["None"],
        "flow": {
            "": "text",
            "/Message": {"system": "text"},
            "/ConversationId": "outside",
            "/SessionId": "outside",
        },
    }

    is_tool_fully_executed_on_server = True

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.TOOL_NAME

    @staticmethod
    def get_schema() -> dict[str, Any]:
        """The function schema that a model sees."""
        return {
            "type": "function",
            "name": HelloWorldTool.TOOL_NAME,
            "description": "Create a friendly greeting from the user's name.",
            "parameters": {
                "type": "object",
                "properties": {
                    "name": {
                        "type": "string",
                        "description": "The name of the person to greet.",
                        "maxLength": 200,
                    }
                },
                "required": ["name"],
            },
        }

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        """A greeting with the ids of the conversation; a blank name is a failed result."""
        try:
            name = _name_in(arguments_json)
            if name is None:
                return InvokeResult.failed("Arguments must be a JSON object with a text 'name'.")
            if not name:
                return InvokeResult.failed("'name' is blank; give the name of the person to greet.")
            greeting = {
                "Message": f"Hello, {name}! Nice to meet you.",
                "ConversationId": context.conversation_id,
                "SessionId": context.session_id,
            }
            return InvokeResult.ok(json.dumps(greeting, ensure_ascii=False))
        except Exception:
            self._logger.exception("agent_hello_world failed")
            return InvokeResult.failed("The greeting could not be made.")


def _name_in(arguments_json: str) -> str | None:
    """The name, stripped; None if it is no text."""
    try:
        name = json.loads(arguments_json)["name"]
    except (ValueError, KeyError, TypeError):
        return None
    return name.strip() if isinstance(name, str) else None
