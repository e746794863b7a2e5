"""toolkeep: a keep with the function registered."""

import toolkeep
from rivals.contestant import Check, Function, Refused


class ToolkeepKeep:
    """The public API as it comes."""

    name = "toolkeep"
    package = "toolkeep"
    sent = "Keep.try_validate_arguments with the raw text; counted are the paths of the violations"
    timed = "Keep.try_validate_arguments"
    takes_text = False

    def send(self, function: Function, raw: str) -> str:
        keep = toolkeep.open_keep()
        keep.register(function)
        checked = keep.try_validate_arguments(function.__name__, raw)
        if isinstance(checked, toolkeep.Refusal):
            return " ".join(violation.path for violation in checked.errors)
        return str(function(**checked.arguments))

    def check(self, function: Function) -> Check:
        keep = toolkeep.open_keep()
        keep.register(function)
        name = function.__name__

        def check(raw: bytes) -> object:
            checked = keep.try_validate_arguments(name, raw)
            if isinstance(checked, toolkeep.Refusal):
                raise Refused(checked.text)
            return checked

        return check
