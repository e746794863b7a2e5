"""Why a text or a value is not acceptable JSON, in words that hold nothing of its content."""

from toolkeep.errors import Code


class NotStrictJson(ValueError):
    """Why a text or a value is not acceptable JSON, in words that hold nothing of its content."""

    def __init__(self, reason: str, mend: str, *, path: str = "", code: Code = Code.NOT_JSON) -> None:
        super().__init__(reason)
        self.reason, self.mend, self.path, self.code = reason, mend, path, code


def infinite_number() -> NotStrictJson:
    """The reason for a number such as 1e400."""
    return NotStrictJson("a number is too large", "send a number between -1.8e308 and 1.8e308")


def too_many_digits(path: str = "") -> NotStrictJson:
    """The reason for an integer that is too long to be worked with."""
    return NotStrictJson("a number has too many digits", "send a shorter number, or text", path=path)


def too_deep(depth: int) -> NotStrictJson:
    """The reason for nesting beyond the limit."""
    return NotStrictJson(
        f"arguments are nested deeper than {depth}", "send flatter data", code=Code.ARGUMENTS_TOO_BIG
    )


def too_many_containers(limit: int) -> NotStrictJson:
    """The reason for a flood of brackets."""
    return NotStrictJson(
        f"arguments hold more than {limit} objects and arrays",
        "send flatter or less data",
        code=Code.ARGUMENTS_TOO_BIG,
    )
