"""A connection of the server: what cannot be heard is answered with a problem document."""

from typing import Final

from toolkeep.errors import Code
from toolkeep.mcp.bounded import BoundedProtocol, Header
from toolkeep.server.problems import document, problem

_UNHEARD: Final = {
    400: (Code.REQUEST_INVALID, "the request is no HTTP that is understood here"),
    408: (Code.REQUEST_TOO_BIG, "the request took too long to arrive"),
    431: (Code.REQUEST_TOO_BIG, "the headers are too long"),
}


class ServerProtocol(BoundedProtocol):
    """One client of the server."""

    def refusal(self, status: int) -> tuple[list[Header], bytes]:
        """Headers and body of an answer to what cannot be heard."""
        code, text = _UNHEARD[status]
        given = problem(document(code, status, text))
        return given.head(), given.body
