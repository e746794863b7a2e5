"""Confirmation of what the page puts in force: scope `admin`, a fresh sign-in and a typed name (WEB-2).

A form that puts something in force includes `parts/confirm.html` (with `typed_label`), its template gets
`**confirm_data(request)`, and its handler calls `admin_change.put_in_force` with
`page_confirmation(request, form)`. Whoever has a cookie of hours ago, or a click that was led astray, puts
nothing in force.
"""

import time
from typing import Any

from toolkeep.server.api.admin_change import Confirmation, is_fresh
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.web.web_request import Form, PageRequest
from toolkeep.stores.api_tokens import Scope

TYPED_NAME = "typed_name"
"""The field of the form."""


def page_confirmation(request: PageRequest, form: Form) -> Confirmation:
    """The confirmation in a form of the page."""
    if request.session is None:
        raise not_found("page")
    return Confirmation(
        caller=request.session.caller,
        person=request.session.approver.agent,
        way="page",
        typed_name=form.get(TYPED_NAME),
        signed_in_at=request.session.signed_in_at,
    )


def confirm_data(request: PageRequest) -> dict[str, Any]:
    """What `parts/confirm.html` shows: whether this person may, and has to sign in again first."""
    session = request.session
    is_admin = session is not None and session.caller.has_scope(Scope.ADMIN)
    return {
        "may_put_in_force": is_admin,
        "is_fresh": session is not None and is_fresh(session.signed_in_at, time.time()),
        "is_of_provider": session is not None and session.is_of_provider,
    }
