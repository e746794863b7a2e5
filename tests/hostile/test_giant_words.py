"""Giant texts full of unseen characters, where only a few words are shown: the rest is not looked at."""

from collections.abc import Callable

import pytest

from toolkeep import Keep, ToolFailed, tool
from toolkeep.mcp_client.transport import InboundMessages, UpstreamError, answered
from toolkeep.mcp_protocol.jsonrpc import Message
from toolkeep.text import display

WORDS = "\x1b" * 100_000


def as_an_error_of_a_server() -> None:
    with pytest.raises(UpstreamError):
        answered(Message(1, "", {}, None, None, {"code": 1, "message": WORDS}))


def as_progress_of_a_server() -> None:
    async def say(_: bytes) -> None:
        """Nothing is said."""

    heard = InboundMessages(None, say)
    heard.listen(1, lambda *_: None)
    params = {"progressToken": 1, "progress": 1, "message": WORDS}
    assert heard.take(Message(None, "notifications/progress", params)) is None


def as_the_failure_of_a_tool() -> None:
    @tool(danger="safe")
    def fail() -> str:
        """Fail."""
        raise ToolFailed(WORDS)

    keep = Keep()
    keep.register(fail)
    assert not keep.call_sync("fail", {}).ok


@pytest.mark.spec("VAL-6", "MCP-2")
@pytest.mark.parametrize("way", [as_an_error_of_a_server, as_progress_of_a_server, as_the_failure_of_a_tool])
def test_of_a_giant_text_only_what_is_shown_is_made_visible(
    way: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0

    def count(_: str) -> bool:
        nonlocal looked_at
        looked_at += 1
        return False

    monkeypatch.setattr(display, "_is_plain", count)
    way()
    assert 0 < looked_at < 10_000
