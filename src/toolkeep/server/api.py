"""The whole API: every route, in the order of the document."""

from typing import Final

from toolkeep.server.routes import about, approvals, audit, calls, health, policies, programs, tokens, tools

ROUTES: Final = (
    *tools.ROUTES,
    *programs.ROUTES,
    *calls.ROUTES,
    *approvals.ROUTES,
    *audit.ROUTES,
    *policies.ROUTES,
    *tokens.ROUTES,
    *health.ROUTES,
    *about.ROUTES,
)
