"""Resolve the references in the arguments of a call, before hooks see them and before validation (FLO-6).

In: arguments as a model wrote them. Out: the request with the texts in their place, with what stood where and
the arguments as written for the record, or a refusal that tells the model what to do.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from toolkeep.calls import Refusal, RegisteredTool, ToolCall, Unreadable, UsedReference, refuse
from toolkeep.errors import Code
from toolkeep.flow.session_references import ReferenceRefused, References, resolve
from toolkeep.json_values.pointers import escaped, steps_of
from toolkeep.keep.hooks import parsed_arguments


def with_texts(
    request: ToolCall, tool: RegisteredTool, references: References, sealed: Callable[[bytes], str]
) -> ToolCall | Refusal:
    """The request with texts in place of references; `sealed` hashes arguments that may hold secrets."""
    if not _may_refer(request.arguments):
        return request
    limits = tool.arguments.limits
    written = parsed_arguments(request.arguments, limits)
    if isinstance(written, Unreadable):
        return request  # validation refuses it, in its own words
    find = partial(references.find, request.flow)
    try:
        resolved = resolve(written, find, most_chars=limits.argument_bytes)
    except ReferenceRefused as refused:
        return refuse(request, Code.REFERENCE_REFUSED, refused.message, refused.fix, path=refused.path)
    if resolved is None:
        # What was looked through must be what is validated: a host can change its own object meanwhile.
        return request if isinstance(request.arguments, (bytes, str)) else replace(request, arguments=written)
    if not resolved.used:  # only a mark was taken off
        return replace(request, arguments=written)
    body = resolved.written
    has_secrets = tool.arguments.secrecy.has_secrets
    return replace(
        request,
        arguments=written,
        references=resolved.used,
        written=b"" if has_secrets else body,
        written_hash=sealed(body) if has_secrets else hashlib.sha256(body).hexdigest(),
    )


def anywhere_in_arguments(request: ToolCall) -> ToolCall:
    """The request after hooks, which may have moved a text within its argument."""
    widened: dict[str, UsedReference] = {}
    for one in request.references:
        top = f"/{escaped(steps_of(one.pointer)[0])}"
        before = widened.get(top)
        widened[top] = replace(one, pointer=top, secret=one.secret or (before is not None and before.secret))
    return replace(request, references=tuple(widened.values()))


def _may_refer(arguments: Any) -> bool:
    """Whether arguments may hold a reserved form, which can be written with escapes, too."""
    if isinstance(arguments, bytes):
        return b"toolkeep_" in arguments or b"\\u" in arguments
    if isinstance(arguments, str):
        return "toolkeep_" in arguments or "\\u" in arguments
    return not isinstance(arguments, Unreadable)
