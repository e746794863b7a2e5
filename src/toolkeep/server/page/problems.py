"""What went wrong, as a page or as a message in the one that is shown."""

from typing import Any, Final

from toolkeep.errors import TITLES, Code, DefinitionError, ToolkeepError
from toolkeep.server.answers import Answer, Header
from toolkeep.server.page.rendering import Renderer
from toolkeep.server.page.request import PageRequest
from toolkeep.server.problems import STATUS, RequestRefused

_OURS: Final = "Something is wrong in the keep itself; its log says what."
_AS_MESSAGE: Final[tuple[Header, ...]] = ((b"hx-retarget", b"#messages"), (b"hx-reswap", b"innerHTML"))


def problem_data(error: ToolkeepError | None) -> dict[str, Any]:
    """What a person is told of an error; of our own bugs, only that there is one."""
    if error is None:
        return {
            "status": 500,
            "code": Code.CHECK_FAILED.value,
            "title": "something broke",
            "message": _OURS,
            "hint": "",
        }
    status = error.status if isinstance(error, RequestRefused) else STATUS.get(error.code, 500)
    message = error.message.split("\n")[0] if isinstance(error, DefinitionError) else error.message
    return {
        "status": status,
        "code": error.code.value,
        "title": TITLES[error.code],
        "message": message,
        "hint": error.hint,
    }


def shown_problem(renderer: Renderer, request: PageRequest, error: ToolkeepError | None) -> Answer:
    """An answer that says what went wrong."""
    data = problem_data(error)
    more = error.headers if isinstance(error, RequestRefused) else ()
    kept = tuple(header for header in more if header[0] == b"x-toolkeep-tab")
    if request.wants_part:
        return renderer.part(
            request, "parts/problem.html", status=data["status"], headers=(*_AS_MESSAGE, *kept), problem=data
        )
    return renderer.part(request, "problem.html", status=data["status"], headers=kept, problem=data)
