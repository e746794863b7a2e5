"""Marks of a parameter: secret, what it touches, and its role.

Workers import this module with the tools that use a mark, so it loads little.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from toolkeep.definitions.vocabulary import Role, TouchForm

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

    from toolkeep.json_values.frozen import JsonValue

TOUCHES_KEY = "x-touches"
FLOW_KEY = "x-flow"
SECRET_KEY = "x-secret"  # noqa: S105 -- the name of a keyword

TOUCH_FORMS: dict[str, TouchForm] = {
    "fs.read": TouchForm.PATH,
    "fs.write": TouchForm.PATH,
    "net.read": TouchForm.URL,
    "net.write": TouchForm.URL,
    "db.read": TouchForm.DATABASE,
    "db.write": TouchForm.DATABASE,
    "process.spawn": TouchForm.ARGV,
}
"""The form in which a parameter of each capability kind names its target by default."""


@dataclass(frozen=True, slots=True)
class Touches:
    """Marks a parameter whose value names what the call would touch.

    In code `Annotated[str, Touches("fs.read")]`, in data `x-touches: fs.read`, or with a form,
    `x-touches: {kind: net.read, form: host}`. With `only`, a call that leaves the parameter out touches
    nothing of that kind; without, it counts as touching all of it that the tool requires.
    """

    kind: str
    form: TouchForm | None = None
    only: bool = False

    def __post_init__(self) -> None:
        if self.kind not in TOUCH_FORMS:
            raise ValueError(f"{self.kind!r} is not one of " + ", ".join(TOUCH_FORMS))
        try:
            object.__setattr__(self, "form", TouchForm(self.form or TOUCH_FORMS[self.kind]))
        except ValueError:
            allowed = ", ".join(form.value for form in TouchForm)
            raise ValueError(f"{self.form!r} is not one of {allowed}") from None

    @classmethod
    def read(cls, data: object) -> "Touches":
        """From `x-touches`; ValueError says what is wrong."""
        if isinstance(data, str):
            return cls(data)
        if isinstance(data, Mapping) and set(data) <= {"kind", "form", "only"}:
            kind, only = data.get("kind"), data.get("only", False)
            if isinstance(kind, str) and isinstance(only, bool):
                return cls(kind, data.get("form"), only)
        raise ValueError(f"{TOUCHES_KEY} is a kind such as 'fs.read', or an object with kind, form and only")

    def to_json(self) -> "JsonValue":
        """The value of `x-touches`."""
        usual = self.form is TOUCH_FORMS[self.kind]
        if usual and not self.only:
            return self.kind
        form = {} if usual else {"form": TouchForm(self.form).value}
        return {"kind": self.kind, **form, **({"only": True} if self.only else {})}

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> dict[str, Any]:
        return {**handler(core_schema), TOUCHES_KEY: self.to_json()}


def kinds_of_mark(mark: object) -> frozenset[str]:
    """The kind of an `x-touches`; every kind if it cannot be read."""
    try:
        return frozenset((Touches.read(mark).kind,))
    # unreadable: count it as every kind, or a broken mark would hide what the call touches
    except ValueError:
        return frozenset(TOUCH_FORMS)


@dataclass(frozen=True, slots=True)
class Secret:
    """Marks a parameter whose value, pattern, enum and default are shown to nobody."""

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> dict[str, Any]:
        return {**handler(core_schema), SECRET_KEY: True}


class _RoleMark:
    """Declares the role of a parameter (FLO-2)."""

    __slots__ = ()
    role: ClassVar[Role]

    def __get_pydantic_json_schema__(
        self, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> dict[str, Any]:
        return {**handler(core_schema), FLOW_KEY: self.role.value}


@dataclass(frozen=True, slots=True)
class Destination(_RoleMark):
    """Marks where the call sends something: a recipient, a host, an account; `x-flow: destination`."""

    role: ClassVar[Role] = Role.DESTINATION


@dataclass(frozen=True, slots=True)
class Target(_RoleMark):
    """Marks what the call changes or takes: a file, a ticket; `x-flow: target`."""

    role: ClassVar[Role] = Role.TARGET


@dataclass(frozen=True, slots=True)
class Destroys(_RoleMark):
    """Marks what is lost after the call; `x-flow: destroys`."""

    role: ClassVar[Role] = Role.DESTROYS


@dataclass(frozen=True, slots=True)
class Credential(_RoleMark):
    """Marks what gives access, such as a password that the call sets; `x-flow: credential`."""

    role: ClassVar[Role] = Role.CREDENTIAL


@dataclass(frozen=True, slots=True)
class Amount(_RoleMark):
    """Marks how much the call spends or moves; `x-flow: amount`."""

    role: ClassVar[Role] = Role.AMOUNT


@dataclass(frozen=True, slots=True)
class Time(_RoleMark):
    """Marks when the call takes effect; `x-flow: time`."""

    role: ClassVar[Role] = Role.TIME


@dataclass(frozen=True, slots=True)
class Record(_RoleMark):
    """Marks anything else that the call acts by: the role of a parameter without one; `x-flow: record`."""

    role: ClassVar[Role] = Role.RECORD


@dataclass(frozen=True, slots=True)
class Content(_RoleMark):
    """Marks a parameter that is only stored, sent or shown: the body of a message, the text of a file.

    In code `Annotated[str, Content()]`, in data `x-flow: content`. A yes that is remembered does not bind it.
    """

    role: ClassVar[Role] = Role.CONTENT


@dataclass(frozen=True, slots=True)
class Option(_RoleMark):
    """Marks a parameter that only says how a call is carried out: an encoding, a number of lines.

    In code `Annotated[int, Option()]`, in data `x-flow: option`. A yes that is remembered does not bind it.
    """

    role: ClassVar[Role] = Role.OPTION


def is_secret(schema: Mapping[str, Any]) -> bool:
    """Whether a property's schema marks it secret in any of the three ways (VAL-6)."""
    return (
        schema.get(SECRET_KEY) is True
        or schema.get("writeOnly") is True
        or schema.get("format") == "password"
    )
