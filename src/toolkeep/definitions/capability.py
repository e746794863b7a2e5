"""A capability: a kind of resource and its scope. Text form `fs.read:./docs`."""

from dataclasses import dataclass

from toolkeep.definitions.parameter_marks import TOUCH_FORMS

KINDS = (*TOUCH_FORMS, "mcp.prompts", "mcp.resources", "mcp.completions", "mcp.subscriptions")
"""The kinds of capabilities. No parameter names what the last ones are about, an upstream."""


@dataclass(frozen=True, slots=True, order=True)
class Capability:
    """A kind and its scope. In a requirement, `*` or no scope means "what policy grants"."""

    kind: str
    scope: str = ""

    @classmethod
    def read(cls, text: "str | Capability") -> "Capability":
        """Parse the text form; ValueError lists the kinds."""
        if isinstance(text, Capability):
            return text
        if not isinstance(text, str):
            raise ValueError(
                f"a capability must be a string such as 'fs.read:./docs', not {type(text).__name__}"
            )
        kind, _, scope = text.partition(":")
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not one of " + ", ".join(KINDS))
        return cls(kind, scope)

    def __str__(self) -> str:
        return f"{self.kind}:{self.scope}" if self.scope else self.kind
