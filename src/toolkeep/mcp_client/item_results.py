"""Results of `prompts/get`, `resources/read` and `completion/complete`: checked, and reduced to the fields of
the protocol.

The server chooses every text in them. URIs are given the name of their upstream, so that a client can ask for
them here and takes none for a file or page of its own.
"""

import base64
import binascii
from typing import Any, Final

from toolkeep.limits import MCP_COMPLETIONS
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.mcp_protocol.resource_uris import OWN_URI_CHARS, namespaced, wrong_with_uri

_ROLES: Final = ("user", "assistant")


def prompt_value(result: dict[str, Any], upstream: str) -> dict[str, Any]:
    """The messages of a prompt; raises `UpstreamFailed`."""
    messages = _complete(result).get("messages")
    if not isinstance(messages, list):
        raise _malformed("has no list of messages")
    words = result.get("description")
    about = {"description": words} if isinstance(words, str) else {}
    return {**about, "messages": [_message(one, upstream) for one in messages]}


def resource_value(result: dict[str, Any], uri: str, upstream: str) -> dict[str, Any]:
    """The contents of a resource, which was asked for by `uri`; raises `UpstreamFailed`."""
    contents = _complete(result).get("contents")
    if not isinstance(contents, list):
        raise _malformed("has no list of contents")
    return {"contents": [_content(one, uri, upstream) for one in contents]}


def completion_value(result: dict[str, Any]) -> dict[str, Any]:
    """The values of a completion; raises `UpstreamFailed`."""
    found = _complete(result).get("completion")
    found = found if isinstance(found, dict) else {}
    values = found.get("values")
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise _malformed("has no list of texts")
    if len(values) > MCP_COMPLETIONS or any(len(one) > OWN_URI_CHARS for one in values):
        raise _malformed(
            f"has more than {MCP_COMPLETIONS} values, or one of more than {OWN_URI_CHARS} characters"
        )
    total, has_more = found.get("total"), found.get("hasMore")
    counted = {"total": total} if type(total) is int and 0 <= total < 1 << 53 else {}
    return {"completion": {"values": values, **counted, "hasMore": has_more is True}}


def _complete(result: dict[str, Any]) -> dict[str, Any]:
    if result.get("resultType", "complete") != "complete":
        raise _malformed("wants to be told more, which is not possible here")
    return result


def _message(message: Any, upstream: str) -> dict[str, Any]:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, dict) or message.get("role") not in _ROLES:
        raise _malformed("has a message without role or content")
    return {"role": message["role"], "content": _block(content, upstream)}


def _block(block: dict[str, Any], upstream: str) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    if kind in ("image", "audio") and isinstance(block.get("mimeType"), str):
        return {"type": kind, "data": _base64(block.get("data")), "mimeType": block["mimeType"]}
    if kind == "resource":
        return {"type": kind, "resource": _content(block.get("resource"), "", upstream)}
    if kind == "resource_link" and isinstance(block.get("name"), str):
        return {"type": kind, "uri": _own_uri(block.get("uri"), "", upstream), **_strings(block, _LINK)}
    raise _malformed("has content of a kind that is not known")


_LINK: Final = ("name", "title", "description", "mimeType")


def _content(content: Any, asked: str, upstream: str) -> dict[str, Any]:
    """Text, or base64 with its type."""
    if not isinstance(content, dict):
        raise _malformed("has contents that are not objects")
    about = {"uri": _own_uri(content.get("uri"), asked, upstream), **_strings(content, ("mimeType",))}
    if isinstance(content.get("text"), str):
        return {**about, "text": content["text"]}
    return {**about, "blob": _base64(content.get("blob"))}


def _own_uri(uri: Any, asked: str, upstream: str) -> str:
    if not wrong_with_uri(uri):
        return namespaced(upstream, uri)
    if asked and uri is None:
        return namespaced(upstream, asked)
    raise _malformed("has a URI that is not accepted")


def _base64(data: Any) -> str:
    """Base64 that decodes: a client must not be handed other bytes than the audited ones."""
    try:
        base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _malformed("has neither text nor base64") from None
    return str(data)


def _strings(found: dict[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: found[key] for key in keys if isinstance(found.get(key), str)}


def _malformed(what: str) -> UpstreamFailed:
    return UpstreamFailed(f"its answer {what}", is_over=False)
