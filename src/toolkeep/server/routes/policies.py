"""Routes of policies."""

from typing import Final

from toolkeep.server import policies
from toolkeep.server.answers import Answer, answer
from toolkeep.server.request import Request
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.tokens import Scope


async def _list(service: Service, request: Request) -> Answer:
    return answer(policies.list_policies(service.keep))


async def _check(service: Service, request: Request) -> Answer:
    return answer(await policies.check_texts(service.keep, await request.read(policies.CheckBody)))


async def _explain(service: Service, request: Request) -> Answer:
    body = await request.read(policies.ExplainBody)
    return answer(await policies.explain_call(service.keep, request.caller, body))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/policies",
        name="listPolicies",
        about="The policies in force.",
        handler=_list,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        gives={200: Given(about="The policies.", kind=list[policies.PolicyView])},
    ),
    Route(
        method="POST",
        path="/v1/policies:check",
        name="checkPolicies",
        about="Whether policies could be used with the tools and agents there are.",
        handler=_check,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        body=policies.CheckBody,
        gives={200: Given(about="Everything that is wrong.", kind=policies.PolicyReport)},
    ),
    Route(
        method="POST",
        path="/v1/policies:explain",
        name="explainCall",
        about="Why a call would be allowed or denied, and what would have to change. Nothing is run.",
        handler=_explain,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        body=policies.ExplainBody,
        gives={200: Given(about="The explanation.", kind=policies.ExplainedCall)},
    ),
)
