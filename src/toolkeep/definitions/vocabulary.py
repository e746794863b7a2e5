"""The enums of definitions: category, danger, side effects, determinism, isolation, state, tier.

Each parses its values in snake_case or PascalCase (`FileSystem` is `file_system`) and accepts its own
members; `read` lists the allowed words for an unknown one.
"""

import re
from enum import Enum, StrEnum
from typing import Self

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake_case(word: str) -> str:
    """`FileSystem`, `fileSystem` and `file-system` as `file_system`."""
    return _HUMP.sub("_", word.strip()).replace("-", "_").replace(" ", "_").lower()


class Word(StrEnum):
    """An enum of words that data spells in snake_case or PascalCase."""

    @classmethod
    def read(cls, word: object) -> Self:
        """The member that `word` names; ValueError lists the allowed words."""
        if isinstance(word, cls):
            return word
        if isinstance(word, str):
            wanted = snake_case(cls._alias(word))
            for member in cls:
                if snake_case(member.value) == wanted:
                    return member
        raise ValueError(f"{word!r} is not one of " + ", ".join(member.value for member in cls))

    @classmethod
    def _alias(cls, word: str) -> str:
        return word


class Category(Word):
    """What a tool is about. `number` is how it is stored, `risk` what a person is shown."""

    FILE_SYSTEM = "file_system"
    NETWORK = "network"
    DATABASE = "database"
    CODE_EXECUTION = "code_execution"
    EXTERNAL_API = "external_api"
    KNOWLEDGE = "knowledge"
    COMMUNICATION = "communication"
    SYSTEM = "system"
    GENERAL = "general"
    CODE = "code"
    VERSION_CONTROL = "version_control"
    CUSTOM = "custom"

    @property
    def number(self) -> int:
        """The number in the store's `category` column."""
        return _NUMBERS[self]

    @property
    def risk(self) -> str:
        """The risk of the category itself."""
        return _RISK.get(self, "medium")

    @classmethod
    def _alias(cls, word: str) -> str:
        return {"web": "network", "data": "database"}.get(word.lower(), word)

    @classmethod
    def read(cls, word: object) -> "Category":
        """The member by word, alias (`web`, `data`) or stored number."""
        if isinstance(word, int) and not isinstance(word, bool):
            for member in cls:
                if member.number == word:
                    return member
        return super().read(word)


_NUMBERS = {category: number for number, category in enumerate(Category)} | {Category.CUSTOM: 100}

_RISK = {
    Category.NETWORK: "medium-high",
    Category.CODE_EXECUTION: "high",
    Category.KNOWLEDGE: "low",
    Category.SYSTEM: "low",
    Category.GENERAL: "low",
    Category.CODE: "low",
}


class CallKind(Word):
    """What a call asks for: a tool, or what an upstream MCP server offers beside tools."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"
    COMPLETION = "completion"
    SUBSCRIPTION = "subscription"


class Danger(Word):
    """When a call needs approval: safe never, low in a paranoid keep only, medium for each call unless the
    approval is remembered, high for every call, critical for every call, twice."""

    SAFE = "safe"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for safe to 4 for critical."""
        return list(Danger).index(self)


class Role(Word):
    """The role of an argument (FLO-2). All but content and option carry authority: what the call acts on."""

    DESTINATION = "destination"
    """Where something is sent: a recipient, a host, an account."""
    TARGET = "target"
    """What is changed or taken: a file, a ticket."""
    DESTROYS = "destroys"
    """What is lost after the call."""
    CREDENTIAL = "credential"
    AMOUNT = "amount"
    TIME = "time"
    RECORD = "record"
    """Anything else that the call acts by; the role of an argument without one."""
    CONTENT = "content"
    """What is only stored, sent or shown."""
    OPTION = "option"
    """How the call is carried out."""

    @property
    def carries_authority(self) -> bool:
        """Whether its value decides what the call acts on: approvals bind it, and its origin counts."""
        return self not in _WITHOUT_AUTHORITY


class Form(Word):
    """What a labelled value of a result looks like. All but text are too short and regular to instruct a
    model."""

    ID = "id"
    EMAIL = "email"
    URL = "url"
    IBAN = "iban"
    DATE = "date"
    NUMBER = "number"
    TEXT = "text"


_WITHOUT_AUTHORITY = frozenset({Role.CONTENT, Role.OPTION})


class SideEffect(Word):
    """What a tool does to the world beyond its answer."""

    NET_READ = "NetRead"
    NET_WRITE = "NetWrite"
    FS_READ = "FsRead"
    FS_WRITE = "FsWrite"
    DB_READ = "DbRead"
    DB_WRITE = "DbWrite"
    PROCESS_SPAWN = "ProcessSpawn"
    READS = "Reads"
    """Reads, of whatever kind: the class alone."""
    WRITES = "Writes"
    """Writes, of whatever kind: the class alone."""
    NONE = "None"

    @property
    def is_write(self) -> bool:
        """Whether the call may change something."""
        return self in _WRITES

    @property
    def is_class(self) -> bool:
        """Whether it is a class (`effects="reads"`), which stands alone."""
        return self in _CLASSES

    @property
    def capability(self) -> str | None:
        """The kind of capability that it needs; a class needs none."""
        return None if self.is_class else snake_case(self.value).replace("_", ".")


_WRITES = frozenset(
    {
        SideEffect.NET_WRITE,
        SideEffect.FS_WRITE,
        SideEffect.DB_WRITE,
        SideEffect.PROCESS_SPAWN,
        SideEffect.WRITES,
    }
)
_CLASSES = frozenset({SideEffect.READS, SideEffect.WRITES, SideEffect.NONE})


class Determinism(Word):
    """Whether the same call gives the same result."""

    PURE = "Pure"
    DETERMINISTIC = "Deterministic"
    MAYBE = "Maybe"
    NON_DETERMINISTIC = "NonDeterministic"


class Isolation(Word):
    """The four isolation levels; each includes the one before it."""

    NONE = "none"
    STANDARD = "standard"
    STRICT = "strict"
    RESTRICTED = "restricted"

    @property
    def rank(self) -> int:
        """0 for none to 3 for restricted."""
        return list(Isolation).index(self)


class ResultType(Word):
    """The type of a tool's result."""

    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    BINARY = "binary"
    STREAM = "stream"


class Normalization(Word):
    """How a result is made comparable: canonical JSON, plain bytes, or a registered function."""

    JSON = "json"
    BINARY = "binary"
    CUSTOM = "custom"


class ParameterType(Word):
    """The plain types of a parameter; `one_of` holds several."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"
    ONE_OF = "one_of"


class ToolState(Word):
    """Whether a registered tool accepts calls."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    QUARANTINED = "quarantined"


class Tier(Word):
    """How much a keep offers, as its operator chose; docs/configuration.md has the counts."""

    CORE = "core"
    WRITER_PRO = "writer_pro"
    TEAMS = "teams"
    ENTERPRISE = "enterprise"

    @property
    def number(self) -> int:
        """The number in the store's `license_tier` column."""
        return list(Tier).index(self)


class TouchForm(Enum):
    """How the value of a parameter names the resource that the call would touch."""

    PATH = "path"
    URL = "url"
    HOST = "host"
    ARGV = "argv"
    DATABASE = "database"
