"""Routes of the log: records, calls, receipts, checkpoint and key."""

from typing import Any, Final

from toolkeep.server import audit
from toolkeep.server.answers import Answer, answer
from toolkeep.server.request import Parameter, Request
from toolkeep.server.routes.common import CURSOR, ID, LIMIT
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.server.statistics import PERIODS, StatisticsView
from toolkeep.tokens import Scope


async def _list(service: Service, request: Request) -> Answer:
    query = request.query
    filters = audit.RecordFilters(**{name: query[name] for name in audit.RecordFilters.__struct_fields__})
    return answer(
        await audit.list_records(
            service.keep, request.caller, filters, limit=query["limit"], cursor=query["cursor"]
        )
    )


async def _show(service: Service, request: Request) -> Answer:
    return answer(await audit.show_record(service.keep, request.caller, int(request.names["index"])))


async def _receipt(service: Service, request: Request) -> Answer:
    return answer(await audit.receipt(service.keep, request.caller, int(request.names["index"])))


async def _call(service: Service, request: Request) -> Answer:
    return answer(await audit.call_records(service.keep, request.caller, request.names["id"]))


async def _checkpoint(service: Service, request: Request) -> Answer:
    return answer(await audit.checkpoint(service.keep))


async def _key(service: Service, request: Request) -> Answer:
    return answer(await audit.public_key(service.keep))


async def _verify(service: Service, request: Request) -> Answer:
    return answer(await audit.verify_log(service.keep))


async def _statistics(service: Service, request: Request) -> Answer:
    return answer(await service.statistics.view(service.keep, int(request.query["hours"])))


_SEERS: Final = (Scope.AUDIT_READ, Scope.CALL)
_INDEX: Final = Parameter(
    name="index", place="path", about="The index of a record.", pattern=r"[0-9]{1,15}", longest=15
)

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/audit:statistics",
        name="showStatistics",
        about="How calls went: counts, durations and reasons, from the log.",
        handler=_statistics,
        scopes=(Scope.AUDIT_READ,),
        tag="audit",
        parameters=(
            Parameter(
                name="hours", about="Of how many hours.", choices=tuple(map(str, PERIODS)), default="24"
            ),
        ),
        gives={200: Given(about="The counts.", kind=StatisticsView)},
    ),
    Route(
        method="GET",
        path="/v1/audit",
        name="listRecords",
        about="Records, newest first: all with audit:read, else those of the token's agent.",
        handler=_list,
        scopes=_SEERS,
        tag="audit",
        parameters=(
            Parameter(name="agent", about="Only records of this agent."),
            Parameter(name="tool", about="Only records of this tool."),
            Parameter(name="type", about="Only records of this type."),
            Parameter(name="status", about="Only records of this status."),
            LIMIT,
            CURSOR,
        ),
        gives={200: Given(about="One page; it may be short, and goes on.", kind=audit.RecordPage)},
    ),
    Route(
        method="GET",
        path="/v1/audit/{index}",
        name="showRecord",
        about="One record, as the log holds it.",
        handler=_show,
        scopes=_SEERS,
        tag="audit",
        parameters=(_INDEX,),
        gives={200: Given(about="The record.", kind=audit.RecordView)},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/audit/{index}/receipt",
        name="showReceipt",
        about="The proof that the record is in the log, checkable offline with the public key.",
        handler=_receipt,
        scopes=_SEERS,
        tag="audit",
        parameters=(_INDEX,),
        gives={200: Given(about="The receipt.", kind=dict[str, Any])},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/audit/calls/{id}",
        name="showCallRecords",
        about="Everything that the log has of one recent call, with the bodies that are kept.",
        handler=_call,
        scopes=_SEERS,
        tag="audit",
        parameters=(ID,),
        gives={200: Given(about="The call.", kind=audit.CallRecords)},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/audit/checkpoint",
        name="showCheckpoint",
        about="A signed checkpoint over everything recorded so far, to be kept elsewhere.",
        handler=_checkpoint,
        scopes=_SEERS,
        tag="audit",
        gives={200: Given(about="The checkpoint.", kind=audit.CheckpointView)},
    ),
    Route(
        method="GET",
        path="/v1/audit/key",
        name="showKey",
        about="The public key of the log.",
        handler=_key,
        scopes=_SEERS,
        tag="audit",
        gives={200: Given(about="The key.", kind=audit.KeyView)},
    ),
    Route(
        method="POST",
        path="/v1/audit:verify",
        name="verifyLog",
        about="Whether the log is what it was. Reads all of it; one at a time.",
        handler=_verify,
        scopes=(Scope.AUDIT_READ,),
        tag="audit",
        gives={200: Given(about="What was found.", kind=dict[str, Any])},
    ),
)
