"""Every page and every part of one, by path."""

from typing import Final

from toolkeep.server.page import approvals, audit, definitions, overview, policies, tokens, tools, trying
from toolkeep.tokens import Scope

ANY_SCOPE: Final = tuple(Scope)

ROUTES: Final = (
    *overview.ROUTES,
    *approvals.ROUTES,
    *tools.ROUTES,
    *trying.ROUTES,
    *definitions.ROUTES,
    *audit.ROUTES,
    *policies.ROUTES,
    *tokens.ROUTES,
)
