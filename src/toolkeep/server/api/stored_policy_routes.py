"""Policies of the state over HTTP: try them with examples and recorded calls, put them in force, drop them.

They count beside the policies of the configuration. What is put in force is confirmed and recorded by
`admin_change`, with its difference.
"""

import asyncio
import difflib
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from toolkeep.errors import ConfigurationInvalid
from toolkeep.host import clock
from toolkeep.keep.keep import Keep
from toolkeep.keep.policy_trial import ExampleOutcome, Trial
from toolkeep.policy.policy_set import PoliciesRefused, PolicyProblem
from toolkeep.server.api.admin_change import Change, Confirmation, bearer_confirmation, put_in_force
from toolkeep.server.http.bearer_auth import Caller, check_scope
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope
from toolkeep.stores.registry_state import StoredPolicies

_DIFFERENCES: Final = 200
"""Calls that a replay names; the number of all is told."""
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
_Text = Annotated[str, Meta(max_length=200_000)]


class TryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policies that somebody would like to put in force."""

    name: Name
    text: _Text
    examples: _Text = ""
    """YAML, as in a file beside policies."""
    replay: bool = False
    """Whether recorded calls are decided by them; needs the scope audit:read."""


class PutBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policies to put in force."""

    name: Name
    text: _Text
    examples: _Text = ""
    typed_name: Annotated[str, Meta(max_length=256)]
    """The name of the policies, to confirm."""


class DropBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policies to take out of force."""

    name: Name
    typed_name: Annotated[str, Meta(max_length=256)]


class ReplayView(msgspec.Struct, frozen=True, kw_only=True):
    """How recorded calls would be decided."""

    judged: int
    same: int
    changed: int
    differences: list[dict[str, Any]]
    """The first of those that change."""
    unjudged: dict[str, int]
    older: int
    """Older calls that were not decided again."""


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """What policies would do, together with the others in force."""

    success: bool
    problems: list[dict[str, Any]]
    lacks_permit: bool = False
    """Whether no policy would permit any call."""
    examples: list[ExampleOutcome] = []
    replay: ReplayView | None = None


async def try_policies(keep: Keep, caller: Caller, body: TryBody) -> TrialReport:
    """Try policies in the place of those of the same name."""
    if body.replay:
        check_scope(caller, (Scope.AUDIT_READ,))
    stored = _stored(body, caller.agent)
    return await asyncio.to_thread(_tried, keep, body.name, stored, is_replayed=body.replay)


def _stored(body: TryBody | PutBody, by: str) -> StoredPolicies:
    return StoredPolicies(
        name=body.name, text=body.text, examples=body.examples, put_by=by, put_at=clock.now()
    )


def _tried(keep: Keep, name: str, stored: StoredPolicies | None, *, is_replayed: bool) -> TrialReport:
    try:
        trial = Trial(keep, name, stored)
    except PoliciesRefused as refused:
        return TrialReport(success=False, problems=[msgspec.to_builtins(one) for one in refused.problems])
    except ConfigurationInvalid as invalid:
        wrong = [PolicyProblem(source=name, message=one, fix="fix the examples") for one in invalid.faults]
        return TrialReport(success=False, problems=[msgspec.to_builtins(one) for one in wrong])
    examples = trial.examples()
    return TrialReport(
        success=not any(one.problem for one in examples),
        problems=[],
        lacks_permit=trial.lacks_permit,
        examples=examples,
        replay=_replayed(trial) if is_replayed else None,
    )


def _replayed(trial: Trial) -> ReplayView:
    replayed, older = trial.replay()
    changed = len(replayed.differences)
    return ReplayView(
        judged=replayed.same + changed,
        same=replayed.same,
        changed=changed,
        differences=[one.to_dict() for one in replayed.differences[:_DIFFERENCES]],
        unjudged=dict(replayed.unjudged),
        older=older,
    )


async def put_policies(keep: Keep, said: Confirmation, body: PutBody) -> list[StoredPolicies]:
    """Put policies in force; raises if they are not confirmed, or cannot be used."""
    stored = _stored(body, said.person)
    await asyncio.to_thread(keep.check_policies, body.name, stored)  # before anything is recorded
    change = Change(what="policies", name=body.name, difference=difference(keep, body.name, stored))
    put = partial(keep.put_policies, body.name, body.text, examples=body.examples, by=said.person)
    await put_in_force(keep, said, change, put)
    return list(keep.stored_policies)


async def drop_policies(keep: Keep, said: Confirmation, body: DropBody) -> list[StoredPolicies]:
    """Take policies out of force; raises if it is not confirmed, or the rest cannot be used."""
    if all(one.name != body.name for one in keep.stored_policies):
        raise not_found("policies of that name in the state")
    await asyncio.to_thread(keep.check_policies, body.name, None)
    change = Change(what="policies", name=body.name, difference=difference(keep, body.name, None))
    await put_in_force(keep, said, change, partial(keep.drop_policies, body.name))
    return list(keep.stored_policies)


def difference(keep: Keep, name: str, stored: StoredPolicies | None) -> str:
    """What changes, line by line."""
    before = next((one for one in keep.stored_policies if one.name == name), None)
    old, new = _lines(before), _lines(stored)
    return "\n".join(difflib.unified_diff(old, new, "before", "after", lineterm=""))


def _lines(stored: StoredPolicies | None) -> list[str]:
    if stored is None:
        return []
    beside = ["// examples", *stored.examples.splitlines()] if stored.examples.strip() else []
    return [*stored.text.splitlines(), *beside]


async def _list(service: Service, request: Request) -> Response:
    return json_response(list(service.keep.stored_policies))


async def _try(service: Service, request: Request) -> Response:
    body = await request.read(TryBody)
    return json_response(await try_policies(service.keep, request.caller, body))


async def _put(service: Service, request: Request) -> Response:
    body = await request.read(PutBody)
    said = bearer_confirmation(request.caller, body.typed_name)
    return json_response(await put_policies(service.keep, said, body))


async def _drop(service: Service, request: Request) -> Response:
    body = await request.read(DropBody)
    said = bearer_confirmation(request.caller, body.typed_name)
    return json_response(await drop_policies(service.keep, said, body))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/stored-policies",
        name="listStoredPolicies",
        about="The policies that people put in force, beside those of the configuration.",
        handler=_list,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        gives={200: ResponseSpec(about="The policies, by name.", kind=list[StoredPolicies])},
    ),
    Route(
        method="POST",
        path="/v1/stored-policies:try",
        name="tryPolicies",
        about="What policies would do with examples and recorded calls. Nothing is changed.",
        handler=_try,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        body=TryBody,
        gives={200: ResponseSpec(about="What they would do.", kind=TrialReport)},
    ),
    Route(
        method="POST",
        path="/v1/stored-policies:put",
        name="putPolicies",
        about="Put policies in force, instead of earlier ones of that name.",
        handler=_put,
        scopes=(Scope.ADMIN,),
        tag="policies",
        body=PutBody,
        gives={200: ResponseSpec(about="The policies of the state.", kind=list[StoredPolicies])},
        problems=(403, 422),
    ),
    Route(
        method="POST",
        path="/v1/stored-policies:drop",
        name="dropPolicies",
        about="Take policies of the state out of force.",
        handler=_drop,
        scopes=(Scope.ADMIN,),
        tag="policies",
        body=DropBody,
        gives={200: ResponseSpec(about="The policies that are left.", kind=list[StoredPolicies])},
        problems=(403, 404, 422),
    ),
)
