"""Any number of distinct typed functions, alike in shape, and sentences to find them by."""

from collections.abc import Callable

_VERBS = (
    "list", "send", "delete", "create", "update", "count", "export", "archive", "approve", "cancel",
    "schedule", "translate", "convert", "compare", "summarize", "rename", "share", "print", "refund", "track",
)  # fmt: skip
_NOUNS = (
    "invoice", "email", "customer", "weather", "report", "calendar", "ticket", "order", "payment", "photo",
    "currency", "flight", "hotel", "recipe", "contract", "database", "folder", "meeting", "parcel", "account",
    "contact", "article", "song", "budget", "sensor",
)  # fmt: skip

SENTENCES = (
    "send an email to a customer",
    "which invoice of the customer is still open",
    "convert an amount into another currency",
    "cancel the flight and the hotel of next week",
    "what is the weather going to be tomorrow",
    "share the budget report with the finance team",
    "delete every old photo in a folder",
    "schedule a meeting and put it into the calendar",
)


def make_functions(count: int) -> list[Callable[..., str]]:
    """That many functions, no two of one name."""
    return [_make_function(number) for number in range(count)]


def _make_function(number: int) -> Callable[..., str]:
    verb, noun = _VERBS[number % len(_VERBS)], _NOUNS[number // len(_VERBS) % len(_NOUNS)]

    def tool(subject: str, limit: int = 10, exact: bool = False) -> str:
        return subject

    tool.__name__ = tool.__qualname__ = f"{verb}_{noun}_{number}"
    tool.__doc__ = f"""{verb.title()} the {noun} of area {number}.

    Args:
        subject: Which {noun} to {verb}.
        limit: How many to {verb} at most.
        exact: Whether the {noun} has to fit exactly.
    """
    return tool
