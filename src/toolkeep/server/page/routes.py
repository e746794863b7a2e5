"""Every page and every part of one, by path."""

from typing import Final

from toolkeep.server.page import approvals, tools, trying
from toolkeep.tokens import Scope

ANY_SCOPE: Final = tuple(Scope)

ROUTES: Final = (*approvals.ROUTES, *tools.ROUTES, *trying.ROUTES)
