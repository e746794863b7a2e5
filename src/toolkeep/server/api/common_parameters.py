"""Parameters shared by several routes."""

from typing import Final

from toolkeep.limits import PAGE, PAGE_MOST
from toolkeep.server.http.request import Parameter

NAME: Final = Parameter(
    name="name",
    place="path",
    about="A tool's name, or `name@version`.",
    pattern=r"[A-Za-z0-9_.@+-]+",
    longest=128,
)
ID: Final = Parameter(
    name="id", place="path", about="An id issued by this server.", pattern=r"[a-z0-9-]+", longest=64
)
LIMIT: Final = Parameter(
    name="limit", kind="integer", about="Maximum number.", default=PAGE, minimum=1, maximum=PAGE_MOST
)
CURSOR: Final = Parameter(name="cursor", about="`next` of the previous page.", longest=1024)
NONE_MATCH: Final = Parameter(
    name="If-None-Match", place="header", about="The ETag of the client's copy.", longest=1024
)
MATCH: Final = Parameter(
    name="If-Match", place="header", about="The ETag of the version to change; required.", longest=1024
)
KEY: Final = Parameter(
    name="Idempotency-Key",
    place="header",
    about="Idempotency key: the call runs at most once for it.",
    longest=256,
)
TAG: Final = (("ETag", "The ETag of this response."),)
