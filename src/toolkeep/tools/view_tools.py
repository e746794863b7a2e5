"""`read_text`, `find_in_text`, `ask_reader`: what a model does with references where views are typed (FLO-6).

The keep resolves references in arguments before a tool runs, so these get the text itself. Whatever they give
back of it, the keep shows as it shows any result: the text of `read_text` as it is, which opens the session.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Annotated, Any, Final

from toolkeep.authoring.tool_decorator import tool
from toolkeep.definitions.parameter_marks import Content, Option
from toolkeep.flow.flow_plan import ASK_READER
from toolkeep.flow.found_values import Kind, find_values
from toolkeep.flow.reader_answer import ANSWER
from toolkeep.flow.typed_view import HINT
from toolkeep.registry.tool_provider import CORE

Reader = Callable[[str, str, dict[str, Any]], Any | Awaitable[Any]]
"""A function of the host's program: it gets a text, a question and the JSON Schema of the answer."""

FOUND: Final = 10
"""Values of one kind that are given: a long list of short values could be read as sentences."""
Text = Annotated[str, Content()]
Schema = Annotated[dict[str, Any], Option()]


@tool(
    effects="reads",
    danger="safe",
    flow={"": "text"},
    description="Show the text that a reference stands for. Do it only if nothing else does: the session has "
    f"then seen text of others, and calls that act need approval. {HINT}",
)
async def read_text(text: Text) -> str:
    """Show a text."""
    return text


@tool(
    effects="reads",
    danger="safe",
    description="Find values of one kind in the text that a reference stands for, without showing the text: "
    f"the first {FOUND} of them.",
    flow={f"/{kind}/*": {"outside": kind} for kind in ("email", "url", "iban", "date", "number", "id")},
)
def find_in_text(text: Text, kind: Annotated[Kind, Option()]) -> dict[str, list[str]]:
    """Find values of a kind."""
    return {kind: list(islice(dict.fromkeys(find_values(text, kind)), FOUND))}


def ask_reader_tool(reader: Reader) -> Any:
    """The tool that asks the reader of the host's program."""

    async def ask_reader(text: Text, question: Text, schema: Schema) -> dict[str, Any]:
        return {ANSWER: await reader(text, question, schema)}

    def ask_reader_in_thread(text: Text, question: Text, schema: Schema) -> dict[str, Any]:
        return {ANSWER: reader(text, question, schema)}

    is_async = inspect.iscoroutinefunction(reader) or inspect.iscoroutinefunction(type(reader).__call__)
    made = tool(
        name=ASK_READER,
        effects="reads",
        danger="safe",
        description="Have another model, without tools, answer a question about the text that a reference "
        "stands for. Numbers, truth values, words of an enum and strings with a format in the schema (email, "
        "uri, date, iban, id, number) come as they are; any other text comes as a reference.",
    )
    return made(ask_reader if is_async else ask_reader_in_thread)


class ViewToolsProvider:
    """Offers the tools for references."""

    name = CORE
    priority = 0

    def __init__(self, reader: Reader | None = None) -> None:
        self._reader = reader

    def get_tool_definitions(self) -> Iterable[Any]:
        """The tools."""
        asks = [] if self._reader is None else [ask_reader_tool(self._reader)]
        return [read_text, find_in_text, *asks]
