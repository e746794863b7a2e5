"""A local server that speaks the providers' wire formats: it calls `find_book`, then says what it was answered.

The first part of the path says which provider is meant. A request without tools, or with an answer to another
call than the one that was made, gets a status of 400.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.providers import wire

CALL = {"title": "Emma"}
STRICT_CALL = {"title": "Emma", "shelf": None}
ANSWER = '"place":2'


class Wrong(Exception):
    """The request is none that the provider would take."""


def _anthropic(request: Any) -> tuple[list[str], Any]:
    answers = [
        (block["tool_use_id"], block["content"])
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return [tool["name"] for tool in request["tools"]], answers


def _chat(request: Any) -> tuple[list[str], Any]:
    answers = [(one["tool_call_id"], one["content"]) for one in request["messages"] if one["role"] == "tool"]
    return [tool["function"]["name"] for tool in request["tools"]], answers


def _ollama(request: Any) -> tuple[list[str], Any]:
    answers = [("", one["content"]) for one in request["messages"] if one["role"] == "tool"]
    return [tool["function"]["name"] for tool in request["tools"]], answers


def _responses(request: Any) -> tuple[list[str], Any]:
    items = request["input"] if isinstance(request["input"], list) else []
    answers = [(one["call_id"], one["output"]) for one in items if one.get("type") == "function_call_output"]
    return [tool["name"] for tool in request["tools"]], answers


def _gemini(request: Any) -> tuple[list[str], Any]:
    parts = [part for content in request["contents"] for part in content["parts"]]
    found = [part["functionResponse"] for part in parts if "functionResponse" in part]
    answers = [(one["id"], json.dumps(one["response"]["output"], separators=(",", ":"))) for one in found]
    return [one["name"] for tool in request["tools"] for one in tool["functionDeclarations"]], answers


def _bedrock(request: Any) -> tuple[list[str], Any]:
    blocks = [block for message in request["messages"] for block in message["content"]]
    found = [block["toolResult"] for block in blocks if "toolResult" in block]
    answers = [(one["toolUseId"], one["content"][0]["text"]) for one in found]
    return [one["toolSpec"]["name"] for one in request["toolConfig"]["tools"] if "toolSpec" in one], answers


READERS: dict[str, Callable[[Any], tuple[list[str], Any]]] = {
    "anthropic": _anthropic,
    "openai": _chat,
    "mistral": _chat,
    "cohere": _chat,
    "ollama": _ollama,
    "openai-responses": _responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
}


def _final(provider: str, text: str) -> Any:
    """A response of words alone."""
    whole = wire.WHOLE[provider]
    if provider == "anthropic":
        return {**whole([], "end_turn"), "content": [{"type": "text", "text": text}]}
    if provider == "openai-responses":
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        return {**whole([]), "output": [message]}
    if provider == "gemini":
        content = {"role": "model", "parts": [{"text": text}]}
        return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]}
    if provider == "bedrock":
        message = {"role": "assistant", "content": [{"text": text}]}
        return {"output": {"message": message}, "stopReason": "end_turn"}
    if provider == "cohere":
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        return {"id": "c1", "finish_reason": "COMPLETE", "message": message}
    if provider == "ollama":
        return {**whole([]), "message": {"role": "assistant", "content": text}}
    made = whole([], "stop")
    made["choices"][0]["message"] = {"role": "assistant", "content": text}
    return made


def _final_stream(provider: str, text: str) -> Iterator[Any]:
    if provider == "openai":
        yield wire._chunk({"role": "assistant", "content": text})
        yield wire._chunk({}, "stop")
        return
    yield {"type": "message_start", "message": {**wire.anthropic([]), "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    yield {"type": "content_block_stop", "index": 0}
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def respond(provider: str, request: Any) -> tuple[Any, bool]:
    """The response to a request, whole or as events; and whether it is a stream."""
    names, answers = READERS[provider](request)
    if "find_book" not in names:
        raise Wrong(f"the tools are {names}")
    is_strict = '"strict": true' in json.dumps(request) and provider.startswith("openai")
    calls = wire.said(("find_book", STRICT_CALL if is_strict else CALL))
    streams = bool(request.get("stream")) and provider in ("anthropic", "openai")
    if not answers:
        made: Any = wire.STREAMS[provider](calls, wire.in_threes) if streams else wire.WHOLE[provider](calls)
        return made, streams
    (call_id, answer) = answers[-1]
    if call_id not in ("", calls[0].id) or ANSWER not in str(answer):
        raise Wrong(f"{call_id} was answered with {answer}")
    text = f"Emma: {answer}"
    return (_final_stream(provider, text) if streams else _final(provider, text)), streams


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        provider = self.path.strip("/").partition("/")[0]
        if self.path.endswith("/responses"):
            provider = "openai-responses"
        try:
            made, streams = respond(provider, json.loads(body))
        except (Wrong, KeyError, TypeError) as error:
            self._send(400, "application/json", json.dumps({"error": {"message": repr(error)}}))
            return
        if not streams:
            self._send(200, "application/json", json.dumps(made))
            return
        lines = [f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n" for event in made]
        if provider == "openai":
            lines = [line.partition("\n")[2] for line in lines] + ["data: [DONE]\n\n"]
        self._send(200, "text/event-stream", "".join(lines))

    def _send(self, status: int, kind: str, text: str) -> None:
        raw = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served() -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
