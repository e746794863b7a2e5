"""What the definitions that a model reads say of references, where views are typed (FLO-6).

Parameters keep their schemas, in strict modes, too: a reference can be written as JSON text wherever a schema
wants text, and some providers take no property names with `$`.
"""

from typing import Final

from msgspec.structs import replace

from toolkeep.calls import RegisteredTool
from toolkeep.flow.flow_plan import READ_TEXT, VIEW_TOOLS

NOTE: Final = f"Texts of others in its result are shown as references; {READ_TEXT} says how to use them."


def for_typed_views(tool: RegisteredTool) -> RegisteredTool:
    """A tool as it is described where views are typed.

    It has no output schema, which a reference would not match.
    """
    if tool.is_built_in and tool.name in VIEW_TOOLS:
        return tool
    definition = tool.definition
    usage = "\n\n".join(filter(None, (definition.usage_metadata, NOTE)))
    return replace(tool, definition=definition.replace(usage_metadata=usage, output_schema=None))
