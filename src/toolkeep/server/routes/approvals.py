"""Routes of approvals: what waits for a person, answers, and rules."""

from typing import Final

from toolkeep.server import approvals
from toolkeep.server.answers import Answer, answer
from toolkeep.server.request import Request
from toolkeep.server.routes.common import CURSOR, ID, LIMIT
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.tokens import Scope


async def _list(service: Service, request: Request) -> Answer:
    query = request.query
    return answer(
        await approvals.list_approvals(
            service.keep, request.caller, limit=query["limit"], cursor=query["cursor"]
        )
    )


async def _show(service: Service, request: Request) -> Answer:
    return answer(await approvals.show_approval(service.keep, request.caller, request.names["id"]))


async def _decide(service: Service, request: Request) -> Answer:
    said = await request.read(approvals.DecideBody)
    return answer(await approvals.decide(service.keep, request.caller, request.names["id"], said))


async def _preview(service: Service, request: Request) -> Answer:
    said = await request.read(approvals.PreviewBody)
    return answer(await approvals.preview_approval(service.keep, request.caller, request.names["id"], said))


async def _rules(service: Service, request: Request) -> Answer:
    return answer(await approvals.list_rules(service.keep))


async def _revoke(service: Service, request: Request) -> Answer:
    await approvals.revoke_rule(service.keep, request.names["id"])
    return Answer(204)


_SEERS: Final = (Scope.APPROVE, Scope.CALL)

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/approvals",
        name="listApprovals",
        about="The calls that wait for a person: all with approve, else those of the token's agent.",
        handler=_list,
        scopes=_SEERS,
        tag="approvals",
        parameters=(LIMIT, CURSOR),
        gives={200: Given(about="One page, oldest first.", kind=approvals.ApprovalPage)},
    ),
    Route(
        method="GET",
        path="/v1/approvals/{id}",
        name="showApproval",
        about="One question: the exact call, of each secret only its length.",
        handler=_show,
        scopes=_SEERS,
        tag="approvals",
        parameters=(ID,),
        gives={200: Given(about="The question.", kind=approvals.ApprovalView)},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/approvals/{id}:decide",
        name="decideApproval",
        about="Answer in the name of the token's agent, which cannot answer for itself.",
        handler=_decide,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        parameters=(ID,),
        body=approvals.DecideBody,
        gives={200: Given(about="The answer counts.", kind=approvals.ApprovalView)},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/approvals/{id}:preview",
        name="previewApproval",
        about="What would pass unasked after a yes for the session or a rule. Nothing is decided.",
        handler=_preview,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        parameters=(ID,),
        body=approvals.PreviewBody,
        gives={200: Given(about="What later calls must satisfy.", kind=approvals.PreviewView)},
        problems=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/rules",
        name="listRules",
        about="The answers that hold for every call like the one asked about.",
        handler=_rules,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        gives={200: Given(about="The rules.", kind=list[approvals.RuleView])},
    ),
    Route(
        method="DELETE",
        path="/v1/rules/{id}",
        name="revokeRule",
        about="End a rule.",
        handler=_revoke,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        parameters=(ID,),
        gives={204: Given(about="It holds no longer.")},
        problems=(404,),
    ),
)
