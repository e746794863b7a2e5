"""What a server answers to a call, as a value; an error of the tool is a failed call (MCP, tools/call)."""

from typing import Any

from toolkeep.definitions.context import ToolFailed
from toolkeep.sources.mcp.speaking import UpstreamFailed


def value_of(said: dict[str, Any], *, wants_structure: bool) -> Any:
    """The structured content where the tool promises one; else its text, or all of its content."""
    if said.get("resultType", "complete") != "complete":
        raise UpstreamFailed(
            "it wants to be told more before it answers, which is not possible here", is_over=False
        )
    content = said.get("content", [])
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise UpstreamFailed("its answer holds no list of content", is_over=False)
    texts = [block.get("text") for block in content if block.get("type") == "text"]
    words = "\n".join(text for text in texts if isinstance(text, str))
    if said.get("isError") is True:
        raise ToolFailed(words or "the server says that it failed, and not why")
    structured = said.get("structuredContent")
    if structured is not None and (wants_structure or not content):
        return structured
    if wants_structure:
        raise UpstreamFailed("its answer lacks the structured content that the tool promises", is_over=False)
    return words if len(texts) == len(content) else content
