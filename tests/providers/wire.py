"""Responses and streams as each provider sends them, made from calls."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

Event = dict[str, Any]


class Said(NamedTuple):
    """A call that a model makes."""

    name: str
    arguments: dict[str, Any]
    id: str

    @property
    def text(self) -> str:
        return json.dumps(self.arguments)


def said(*calls: tuple[str, dict[str, Any]]) -> list[Said]:
    """Calls with ids of the length that the pickiest provider wants."""
    return [Said(name, arguments, f"call{number:05d}") for number, (name, arguments) in enumerate(calls)]


Cut = Callable[[str], Sequence[str]]
"""How a text is cut into pieces."""


def in_threes(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


# --- whole responses ---------------------------------------------------------------------------


def anthropic(calls: Sequence[Said], stop: str = "tool_use") -> Event:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "text", "text": "I will look."},
            *({"type": "tool_use", "id": one.id, "name": one.name, "input": one.arguments} for one in calls),
        ],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _chat_calls(calls: Sequence[Said]) -> list[Event]:
    return [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.text}}
        for one in calls
    ]


def chat(calls: Sequence[Said], stop: str = "tool_calls") -> Event:
    message = {"role": "assistant", "content": None, "tool_calls": _chat_calls(calls)}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": stop, "logprobs": None}],
    }


def mistral(calls: Sequence[Said], stop: str = "tool_calls") -> Event:
    return {**chat(calls, stop), "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}


def _item(one: Said, status: str = "completed") -> Event:
    return {
        "type": "function_call",
        "id": f"fc_{one.id}",
        "call_id": one.id,
        "name": one.name,
        "arguments": one.text,
        "status": status,
    }


def responses(calls: Sequence[Said], stop: str = "completed") -> Event:
    return {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "status": stop,
        "model": "m",
        "output": [_item(one) for one in calls],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def gemini(calls: Sequence[Said], stop: str | None = "STOP") -> Event:
    parts = [{"functionCall": {"id": one.id, "name": one.name, "args": one.arguments}} for one in calls]
    candidate: Event = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {"candidates": [{**candidate, **({"finishReason": stop} if stop else {})}]}


def bedrock(calls: Sequence[Said], stop: str = "tool_use") -> Event:
    content = [{"toolUse": {"toolUseId": one.id, "name": one.name, "input": one.arguments}} for one in calls]
    return {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": stop}


def cohere(calls: Sequence[Said], stop: str = "TOOL_CALL") -> Event:
    message = {"role": "assistant", "tool_calls": _chat_calls(calls)}
    return {"id": "c1", "finish_reason": stop, "message": message}


def ollama(calls: Sequence[Said], stop: str = "stop") -> Event:
    made = [{"function": {"name": one.name, "arguments": one.arguments}} for one in calls]
    message = {"role": "assistant", "content": "", "tool_calls": made}
    return {"model": "m", "created_at": "now", "message": message, "done": True, "done_reason": stop}


def plain(calls: Sequence[Said], stop: str = "") -> Event:
    made = [
        {"id": one.id, "name": one.name, "arguments": one.text, "finished": stop != "cut"} for one in calls
    ]
    return {"calls": made}


def mcp(calls: Sequence[Said], stop: str = "") -> Event:
    (one,) = calls
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": one.name, "arguments": one.arguments},
    }


WHOLE: dict[str, Callable[..., Event]] = {
    "anthropic": anthropic,
    "openai": chat,
    "vllm": chat,
    "openai-responses": responses,
    "gemini": gemini,
    "bedrock": bedrock,
    "mistral": mistral,
    "cohere": cohere,
    "ollama": ollama,
    "mcp": mcp,
    "mcp-2025-11-25": mcp,
    "json-schema": plain,
    "llguidance": plain,
    "xgrammar": plain,
}

CUT_STOP = {
    "anthropic": "max_tokens",
    "openai": "length",
    "vllm": "length",
    "openai-responses": "incomplete",
    "gemini": "MAX_TOKENS",
    "bedrock": "max_tokens",
    "mistral": "length",
    "cohere": "MAX_TOKENS",
    "ollama": "length",
    "json-schema": "cut",
    "llguidance": "cut",
    "xgrammar": "cut",
}
"""How a response says that it was cut."""


# --- streams: the last event is the one that ends the response -----------------------------------


def anthropic_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    message = {**anthropic([]), "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": message}
    for index, one in enumerate(calls):
        block = {"type": "tool_use", "id": one.id, "name": one.name, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in ["", *cut(one.text)]:
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 1},
    }
    yield {"type": "message_stop"}


def _chunk(delta: Event, stop: str | None = None) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": stop, "logprobs": None}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def chat_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    yield _chunk({"role": "assistant", "content": None})
    for index, one in enumerate(calls):
        function = {"name": one.name, "arguments": ""}
        yield _chunk(
            {"tool_calls": [{"index": index, "id": one.id, "type": "function", "function": function}]}
        )
        for piece in cut(one.text):
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _chunk({}, "tool_calls")


def mistral_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    """Each call comes whole, and all are numbered 0 where nobody numbers them."""
    yield {"data": _chunk({"role": "assistant", "content": ""})}
    for one in calls:
        yield {"data": _chunk({"tool_calls": [{**_chat_calls([one])[0], "index": 0}]})}
    yield {"data": _chunk({"content": ""}, "tool_calls")}


def responses_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    number = 0

    def event(kind: str, **fields: Any) -> Event:
        nonlocal number
        number += 1
        return {"type": kind, "sequence_number": number, **fields}

    yield event("response.created", response=responses([], "in_progress"))
    for index, one in enumerate(calls):
        begun = {**_item(one, "in_progress"), "arguments": ""}
        yield event("response.output_item.added", output_index=index, item=begun)
        for piece in cut(one.text):
            yield event(
                "response.function_call_arguments.delta",
                item_id=f"fc_{one.id}",
                output_index=index,
                delta=piece,
            )
        yield event(
            "response.function_call_arguments.done",
            item_id=f"fc_{one.id}",
            output_index=index,
            arguments=one.text,
            name=one.name,
        )
        yield event("response.output_item.done", output_index=index, item=_item(one))
    yield event("response.completed", response=responses(calls))


def gemini_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    for one in calls:
        yield gemini([one], None)
    yield gemini([])


def vertex_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    """Arguments one by one, text in pieces."""

    def part(**call: Any) -> Event:
        return {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": call}]}}]}

    for one in calls:
        yield part(id=one.id, name=one.name, willContinue=True)
        for path, value in _leaves(one.arguments, "$"):
            if isinstance(value, str) and value:
                *firsts, last = cut(value)
                for piece in firsts:
                    yield part(
                        partialArgs=[{"jsonPath": path, "stringValue": piece, "willContinue": True}],
                        willContinue=True,
                    )
                yield part(partialArgs=[{"jsonPath": path, "stringValue": last}], willContinue=True)
            else:
                yield part(partialArgs=[{"jsonPath": path, **_leaf(value)}], willContinue=True)
        yield part()
    yield gemini([])


def _leaf(value: Any) -> Event:
    if value is None:
        return {"nullValue": "NULL_VALUE"}
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"stringValue": value} if isinstance(value, str) else {"numberValue": float(value)}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inside in value.items():
            quoted = key.replace("\\", "\\\\").replace("'", "\\'")
            yield from _leaves(inside, f"{path}['{quoted}']")
    elif isinstance(value, list):
        for index, inside in enumerate(value):
            yield from _leaves(inside, f"{path}[{index}]")
    else:
        yield path, value


def bedrock_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    yield {"messageStart": {"role": "assistant"}}
    for index, one in enumerate(calls):
        start = {"toolUse": {"toolUseId": one.id, "name": one.name}}
        yield {"contentBlockStart": {"start": start, "contentBlockIndex": index}}
        for piece in cut(one.text):
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": piece}}, "contentBlockIndex": index}}
        yield {"contentBlockStop": {"contentBlockIndex": index}}
    yield {"messageStop": {"stopReason": "tool_use"}}


def cohere_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    yield {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}}
    for index, one in enumerate(calls):
        call = {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": ""}}
        yield {"type": "tool-call-start", "index": index, "delta": {"message": {"tool_calls": call}}}
        for piece in cut(one.text):
            delta = {"message": {"tool_calls": {"function": {"arguments": piece}}}}
            yield {"type": "tool-call-delta", "index": index, "delta": delta}
        yield {"type": "tool-call-end", "index": index}
    yield {"type": "message-end", "id": "m1", "delta": {"finish_reason": "TOOL_CALL"}}


def ollama_stream(calls: Sequence[Said], cut: Cut) -> Iterator[Event]:
    for one in calls:
        yield {**ollama([one]), "done": False, "done_reason": None}
    yield {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}


STREAMS: dict[str, Callable[[Sequence[Said], Cut], Iterator[Event]]] = {
    "anthropic": anthropic_stream,
    "openai": chat_stream,
    "vllm": chat_stream,
    "openai-responses": responses_stream,
    "gemini": gemini_stream,
    "bedrock": bedrock_stream,
    "mistral": mistral_stream,
    "cohere": cohere_stream,
    "ollama": ollama_stream,
}
