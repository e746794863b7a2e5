"""The route of persistent programs."""

from typing import Final

from toolkeep.execution.residents import PersistentProgram
from toolkeep.server.answers import Answer, answer
from toolkeep.server.request import Request
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.tokens import Scope


async def _list(service: Service, request: Request) -> Answer:
    return answer(service.keep.persistent_programs())


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/programs",
        name="listPrograms",
        about="The persistent programs of all agents: each with its grant, running or stopped.",
        handler=_list,
        scopes=(Scope.AUDIT_READ,),
        tag="tools",
        gives={200: Given(about="The programs.", kind=tuple[PersistentProgram, ...])},
    ),
)
