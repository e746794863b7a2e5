"""The keys `fleet` and `worker` of the configuration: workers on other machines, and this one as a worker."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from toolkeep.definitions.capability import Capability

NATS_FILES: Final = ("nkey_file", "ca_file", "certificate_file", "key_file")


class NatsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How NATS is reached."""

    servers: tuple[str, ...] = ()
    nkey_file: str = ""
    user: str = ""
    password: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    replicas: int = 1
    """Of the bucket for large bodies and code."""

    def __repr__(self) -> str:
        """Without the password."""
        return "<nats>"


class TrustedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that may take calls, and what it may claim."""

    name: str
    key: str
    labels: tuple[str, ...] = ()
    tools: tuple[str, ...] = ("*",)
    levels: tuple[str, ...] = ("standard", "strict", "restricted", "wasm")
    agents: tuple[str, ...] = ("*",)


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Workers on other machines."""

    nats: NatsSettings
    workers: tuple[TrustedWorker, ...] = ()
    runs_on: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    """The label of the workers that run a tool, by its name, whatever its definition says; None for here."""
    lease_s: float = 5.0
    sample: float = 0.0
    """Share of the deterministic calls that a second worker runs, too, to compare."""


class TrustedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server whose calls a worker runs, and the most that they may ask for."""

    key: str
    name: str = ""
    tools: tuple[str, ...] = ("*",)
    agents: tuple[str, ...] = ("*",)
    capabilities: tuple[Capability, ...] = ()
    code: bool = False
    """Whether it may install the code of tools that this machine lacks."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """This machine as a worker."""

    nats: NatsSettings = NatsSettings()
    servers: tuple[TrustedServer, ...] = ()
    labels: tuple[str, ...] = ()
    slots: int = 0
    """How many calls run at once; 0 for one for each core."""


def covers(allowed: tuple[str, ...], name: str) -> bool:
    """Whether a list of names, or `*`, holds a name."""
    return "*" in allowed or name in allowed


Data = dict[str, Any]
Absolute = Callable[[Any], str]


def _nats(data: Data, absolute: Absolute) -> NatsSettings:
    servers = data["servers"]
    files = {name: absolute(data.get(name)) for name in NATS_FILES}
    return NatsSettings(
        servers=(servers,) if isinstance(servers, str) else tuple(servers),
        user=data.get("user") or "",
        password=data.get("password") or "",
        replicas=data.get("replicas") or 1,
        **files,
    )


def read_fleet(data: Data | None, absolute: Absolute) -> FleetSettings | None:
    """The key `fleet`; `absolute` resolves paths from the file's folder."""
    if not data:
        return None
    given = {"lease_s": float(data["lease"])} if "lease" in data else {}
    return FleetSettings(
        nats=_nats(data["nats"], absolute),
        workers=tuple(msgspec.convert(one, TrustedWorker) for one in data.get("workers") or ()),
        runs_on=data.get("runs_on") or {},
        sample=float(data.get("sample") or 0),
        **given,
    )


def read_worker(data: Data | None, absolute: Absolute) -> WorkerSettings | None:
    """The key `worker`."""
    if not data:
        return None
    return WorkerSettings(
        nats=_nats(data["nats"], absolute) if data.get("nats") else NatsSettings(),
        servers=tuple(map(_server, data.get("servers") or ())),
        labels=tuple(data.get("labels") or ()),
        slots=data.get("slots") or 0,
    )


def _server(data: Data) -> TrustedServer:
    held = tuple(map(Capability.read, data.get("capabilities") or ()))
    return TrustedServer(
        key=data["key"],
        name=data.get("name") or "",
        tools=tuple(data.get("tools") or ("*",)),
        agents=tuple(data.get("agents") or ("*",)),
        capabilities=held,
        code=bool(data.get("code")),
    )


_NAME: Final[Data] = {"type": "string", "minLength": 1, "maxLength": 64}
_NAMES: Final[Data] = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 1024}}
_FILE: Final[Data] = {"type": "string", "minLength": 1, "maxLength": 4096}
_KEY: Final[Data] = {
    "type": "string",
    "pattern": "^ed25519:[A-Za-z0-9+/]{43}=$",
    "description": "Its public key: `toolkeep fleet key`, `toolkeep worker --show-key`.",
}
_ADDRESS: Final[Data] = {"type": "string", "pattern": "^(nats|tls)://[^@]+$", "maxLength": 1024}
_NATS: Final[Data] = {
    "type": "object",
    "description": "How NATS is reached.",
    "required": ["servers"],
    "properties": {
        "servers": {
            "anyOf": [_ADDRESS, {"type": "array", "minItems": 1, "maxItems": 64, "items": _ADDRESS}],
            "description": "Address, or those of a cluster; `tls://` demands TLS.",
        },
        "nkey_file": {**_FILE, "description": "The seed of an nkey."},
        "user": {"type": "string", "maxLength": 256, "description": "Name of a user of NATS."},
        "password": {
            "type": "string",
            "maxLength": 1024,
            "writeOnly": True,
            "description": "Its password; better read it from a variable.",
        },
        "ca_file": {**_FILE, "description": "Who signs the certificates of the servers."},
        "certificate_file": {**_FILE, "description": "The own certificate, for TLS on both sides."},
        "key_file": {**_FILE, "description": "The private key of that certificate."},
        "replicas": {
            "enum": [1, 3, 5],
            "description": "Copies that JetStream keeps of large bodies and code; 3 in a cluster.",
        },
    },
}
_LEVELS: Final[Data] = {
    "type": "array",
    "items": {"enum": ["standard", "strict", "restricted", "wasm"]},
    "description": "Isolation levels that it may claim.",
}
FLEET: Final[Data] = {
    "type": "object",
    "description": "Workers on other machines, which run tools for this keep.",
    "required": ["nats"],
    "properties": {
        "nats": _NATS,
        "lease": {
            "type": "number",
            "minimum": 2,
            "maximum": 300,
            "description": "Seconds that a worker which is cut off may go on with a call.",
        },
        "sample": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "Share of the deterministic calls that a second worker runs, too: a worker whose "
            "results differ is quarantined.",
        },
        "runs_on": {
            "type": "object",
            "description": "Label of the workers that run a tool, by its name; empty for any worker, null "
            "for this machine. It goes over `constraints.runs_on` of the definition.",
            "additionalProperties": {"type": ["string", "null"], "maxLength": 64},
        },
        "workers": {
            "type": "array",
            "maxItems": 10_000,
            "description": "The trusted workers, and what each may claim.",
            "items": {
                "type": "object",
                "required": ["name", "key"],
                "properties": {
                    "name": _NAME,
                    "key": _KEY,
                    "labels": {**_NAMES, "description": "Labels that it may claim."},
                    "tools": {**_NAMES, "description": "Tools that it may claim; by default all."},
                    "levels": _LEVELS,
                    "agents": {**_NAMES, "description": "Agents whose calls it may run; by default all."},
                },
            },
        },
    },
}
WORKER: Final[Data] = {
    "type": "object",
    "description": "What this machine does for servers elsewhere: `toolkeep worker`.",
    "properties": {
        "nats": _NATS,
        "labels": {**_NAMES, "description": "What servers choose it by."},
        "slots": {
            "type": "integer",
            "minimum": 1,
            "maximum": 10_000,
            "description": "How many calls run at once; by default one for each core.",
        },
        "servers": {
            "type": "array",
            "maxItems": 1_000,
            "description": "The trusted servers, and the most that each may ask for.",
            "items": {
                "type": "object",
                "required": ["key"],
                "properties": {
                    "name": _NAME,
                    "key": _KEY,
                    "tools": {**_NAMES, "description": "Tools that it may have run; by default all."},
                    "agents": {**_NAMES, "description": "Agents that it may name; by default all."},
                    "capabilities": {
                        **_NAMES,
                        "description": "The most that it may grant; by default nothing.",
                    },
                    "code": {
                        "type": "boolean",
                        "description": "Whether it may install the code of tools that this machine lacks.",
                    },
                },
            },
        },
    },
}
