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
ID: Final = Parameter(name="id", place="path", about="An id that we gave.", pattern=r"[a-z0-9-]+", longest=64)
LIMIT: Final = Parameter(
    name="limit", kind="integer", about="How many at most.", default=PAGE, minimum=1, maximum=PAGE_MOST
)
CURSOR: Final = Parameter(name="cursor", about="`next` of the page before.", longest=1024)
NONE_MATCH: Final = Parameter(
    name="If-None-Match", place="header", about="The tag of what the client has.", longest=1024
)
MATCH: Final = Parameter(
    name="If-Match", place="header", about="The tag of what is changed; needed.", longest=1024
)
KEY: Final = Parameter(
    name="Idempotency-Key",
    place="header",
    about="The same key never runs the same call twice.",
    longest=256,
)
TAG: Final = (("ETag", "The tag of this answer."),)
