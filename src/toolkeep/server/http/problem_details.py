"""Errors as problem documents (RFC 9457) with our error codes.

One table maps codes to statuses. A client reads what a model or a person would: never a class name, a path of
this machine or another agent's text.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolkeep.calls import Refusal, ToolResult
from toolkeep.errors import TITLES, Code, DefinitionError, ToolkeepError
from toolkeep.server.http.responses import PROBLEM_TYPE, Header, Response, json_bytes

TYPE: Final = "urn:toolkeep:problem:"
"""Prefix of `type`, followed by the code; docs/errors has a page for each."""

STATUS: Final[dict[Code, int]] = {
    Code.UNKNOWN_TOOL: 404,
    Code.NOT_JSON: 422,
    Code.REQUIRED_MISSING: 422,
    Code.WRONG_TYPE: 422,
    Code.CONSTRAINT: 422,
    Code.SCHEMA_REFUSED: 422,
    Code.DUPLICATE_TOOL: 409,
    Code.SCHEMA_BROKEN: 422,
    Code.DEFINITION_INVALID: 422,
    Code.ARGUMENTS_TOO_BIG: 422,
    Code.WORK_EXCEEDED: 422,
    Code.TOOL_DISABLED: 409,
    Code.REFUSED_REPEATEDLY: 422,
    Code.CONTRACT_BROKEN: 422,
    Code.TOOL_QUARANTINED: 409,
    Code.TIER_EXCEEDED: 403,
    Code.BUILT_IN_PROTECTED: 403,
    Code.NOT_ACCEPTED: 409,
    Code.FEATURE_CLOSED: 403,
    Code.AGENT_UNKNOWN: 403,
    Code.NOT_PERMITTED: 403,
    Code.APPROVAL_NEEDED: 403,
    Code.RATE_LIMITED: 429,
    Code.QUEUE_FULL: 503,
    Code.CIRCUIT_OPEN: 503,
    Code.TIMED_OUT: 504,
    Code.CANCELLED: 503,
    Code.TOOL_FAILED: 502,
    Code.OUTPUT_INVALID: 502,
    Code.OUTPUT_TOO_BIG: 502,
    Code.ISOLATION_UNAVAILABLE: 501,
    Code.NOT_RUNNABLE: 501,
    Code.KEY_CONFLICT: 409,
    Code.OUTCOME_UNKNOWN: 409,
    Code.NOT_RECORDED: 503,
    Code.OUTCOME_NOT_RECORDED: 500,  # not 503, which asks clients to send it again
    Code.HOOK_REFUSED: 403,
    Code.RESULT_WITHHELD: 502,
    Code.NOT_PENDING: 404,
    Code.OPTION_REFUSED: 422,
    Code.POLICIES_INVALID: 422,
    Code.TOUCHED_CHANGED: 409,
    Code.APPROVAL_DENIED: 403,
    Code.ANSWER_REFUSED: 409,
    Code.STORE_UNAVAILABLE: 503,
    Code.STORE_CONFLICT: 409,
    Code.STORE_LAYOUT_UNFIT: 503,
    Code.TOKEN_REFUSED: 422,
    Code.NOT_AUTHENTICATED: 401,
    Code.SCOPE_MISSING: 403,
    Code.REQUEST_INVALID: 400,
    Code.REQUEST_TOO_BIG: 413,
    Code.NOT_SPOKEN_TO: 403,
    Code.NOTHING_THERE: 404,
    Code.METHOD_REFUSED: 405,
    Code.CHANGED_MEANWHILE: 412,
    Code.NOT_SERVING: 503,
    Code.MEDIA_REFUSED: 415,
    Code.SIGN_IN_REFUSED: 401,
    Code.NOT_FROM_PAGE: 403,
    Code.NOT_CONFIRMED: 403,
    Code.REFERENCE_REFUSED: 422,
}
"""HTTP status by code; every other code is an internal error: 500."""

TRY_AGAIN: Final = {429, 503}
"""Statuses that ask a client to send the same request again."""


class RequestRefused(ToolkeepError):
    """A client error; `status` overrides the status of the code."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        hint: str = "",
        status: int = 0,
        headers: tuple[Header, ...] = (),
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.status = status or STATUS.get(code, 500)
        self.headers = headers


def not_found(what: str) -> RequestRefused:
    """404 for what does not exist and for what belongs to another agent: the two must look the same."""
    return RequestRefused(Code.NOTHING_THERE, f"there is no such {what}, or you may not see it")


def document(code: Code, status: int, detail: str, **more: Any) -> dict[str, Any]:
    """A problem document."""
    head = {"type": TYPE + code.value, "title": TITLES[code], "status": status, "detail": detail}
    return {**head, "code": code.value, **{key: value for key, value in more.items() if value}}


def problem(data: Mapping[str, Any], headers: tuple[Header, ...] = ()) -> Response:
    """A problem document as a response."""
    status = data["status"]
    more = ((b"retry-after", b"1"),) if status in TRY_AGAIN else ()
    return Response(status, json_bytes(data), PROBLEM_TYPE, (*headers, *more))


def of_error(error: ToolkeepError) -> Response:
    """An exception as a response."""
    if isinstance(error, RequestRefused):
        return problem(document(error.code, error.status, error.message, hint=error.hint), error.headers)
    status = STATUS.get(error.code, 500)
    if status >= 500 and error.code is not Code.NOT_RECORDED:
        # Errors of our own set-up or machine: their messages may contain paths and addresses.
        return problem(document(error.code, status, "Internal error; tell the operator of the keep."))
    problems = [one.to_dict() for one in error.problems] if isinstance(error, DefinitionError) else None
    message = error.message.split("\n")[0] if problems else error.message
    return problem(document(error.code, status, message, hint=error.hint, problems=problems))


def of_refusal(refusal: Refusal, **more: Any) -> dict[str, Any]:
    """A refused call as a problem document."""
    code = refusal.code
    said = refusal.to_dict()
    del said["success"]
    first = refusal.errors[0]
    return document(
        code, STATUS.get(code, 500), first.message, hint=first.suggestion, text=refusal.text, **said, **more
    )


def of_result(result: ToolResult, refusal: Refusal) -> dict[str, Any]:
    """A failed call as a problem document."""
    data = of_refusal(refusal, call_id=result.call_id, agent=result.agent, isolation=result.isolation)
    data["leaf"] = result.leaf
    if result.decision is not None:
        data["decision"] = result.decision.to_dict()
    if result.is_repeated:
        data["is_repeated_result"] = True
    return data


INTERNAL: Final = problem(document(Code.CHECK_FAILED, 500, "Internal error; tell the operator of the keep."))
"""The response to a bug: the details are in the log only, since they may contain secrets."""
