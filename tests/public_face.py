"""The public face of toolkeep, collected from the code: every name that users depend on.

`tests/public_face.txt` is the committed copy; `test_public_face.py` compares the two. To change the face on
purpose, change the code, then renew the copy and commit both:

    .venv/bin/python -m tests.public_face

Nothing is typed a second time here: the lines come from `__all__`, source signatures, structs, tables, schemas,
routes and commands.
"""

import ast
import importlib.metadata
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import click
import msgspec

from tests.signatures import describe_file, describe_module
from toolkeep.audit.entry import Entry
from toolkeep.audit.receipt import Receipt
from toolkeep.audit.record_kinds import Record
from toolkeep.calls import Approval, Decision
from toolkeep.cli.main import cli
from toolkeep.config.schema import FILE_SCHEMA, editor_schema
from toolkeep.errors import Code
from toolkeep.policy.active_policies import ALWAYS, WITHOUT_POLICIES
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.cedar_schema import cedar_schema
from toolkeep.policy.policy_settings import KNOWN_PERMISSIONS
from toolkeep.registry.lockfile import Lock, write_lock
from toolkeep.registry.tiers import ALLOWANCES
from toolkeep.server.api.routes import ROUTES
from toolkeep.server.http.openapi_document import document
from toolkeep.sources.entry_points import GROUP
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.sql.tables import METADATA
from toolkeep.stores.api_tokens import Scope
from toolkeep.stores.registry_state import Pin
from toolkeep.telemetry.logs import _LINES, JsonFormatter
from toolkeep.telemetry.metrics import Metrics
from toolkeep.telemetry.spans import DefinitionInstruments, _observe_categories
from toolkeep.telemetry.webhook import TYPES
from toolkeep.testing import MemoryRegistry
from toolkeep.tools.catalog import CoreToolsProvider

SNAPSHOT = Path(__file__).with_suffix(".txt")
SOURCE = Path(__file__).resolve().parents[1] / "src" / "toolkeep"
RENEW = ".venv/bin/python -m tests.public_face"

LOADED_MODULES = (
    "toolkeep",
    "toolkeep.errors",
    "toolkeep.events",
    "toolkeep.testing",
    "toolkeep.mcp",
    "toolkeep.server",
)
FRAMEWORK_MODULES = tuple(
    f"toolkeep.frameworks.{name}" for name in ("langchain", "openai_agents", "pydantic_ai")
)
"""They import packages that are not installed here, so they are read and not loaded."""

PUBLIC_MODULES = (*LOADED_MODULES, *FRAMEWORK_MODULES)
"""What users may import. docs/versioning.md argues each; everything else is internal."""


def collect() -> dict[str, list[str]]:
    """Every section of the face with its lines."""
    return {title: section(title) for title in titles()}


def titles() -> list[str]:
    """The sections, in order."""
    return [*PUBLIC_MODULES, *_SECTIONS]


def section(title: str) -> list[str]:
    """The lines of one section: of a module in the order of its names, else sorted."""
    if title in FRAMEWORK_MODULES:
        return list(describe_file(source_of(title)))
    if title in LOADED_MODULES:
        return list(describe_module(title, LOADED_MODULES))
    return sorted(set(_SECTIONS[title]()))


def source_of(module: str) -> Path:
    """The file of a module of toolkeep."""
    return SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py")


# --- what can go wrong, and what is told ---------------------------------------------------------


def error_codes() -> Iterator[str]:
    """Every code, with its name in Python."""
    return (f"{code.value} {code.name}" for code in Code)


def event_log_lines() -> Iterator[str]:
    """The logger, level and message of each event."""
    for event, line in _LINES.items():
        level = logging.getLevelName(line.level).lower()
        yield f"{event.__name__}: {line.logger.name}, {level}: {line.message}"


def loggers() -> Iterator[str]:
    """The names of all loggers, by which a program sets levels."""
    named = {
        call.args[0].value
        for tree in _trees_with("getLogger")
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "logging.getLogger"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    return (str(name) for name in named if str(name).startswith("toolkeep"))


def json_log_keys() -> Iterator[str]:
    """What every line of JSON in the log of a program has, and the one that an exception adds."""
    record = logging.makeLogRecord({"exc_info": (ValueError, ValueError(), None)})
    return iter(json.loads(JsonFormatter().format(record)))


def webhook_events() -> Iterator[str]:
    """The CloudEvents types that a webhook may get."""
    return (f"toolkeep.{name}" for name in TYPES)


def metrics() -> Iterator[str]:
    """Prometheus metrics with their labels, then OpenTelemetry instruments."""
    made = Metrics([], lambda: 0)
    for held in vars(made).values():
        for metric in held.describe() if hasattr(held, "describe") else ():
            yield f"{metric.type} {metric.name}{{{', '.join(held._labelnames)}}}"
    _observe_categories.cache_clear()
    with patch("opentelemetry.metrics.get_meter") as meter:
        DefinitionInstruments(MemoryRegistry())
    _observe_categories.cache_clear()
    for name, arguments, _ in meter.return_value.method_calls:
        yield f"{name.removeprefix('create_')} {arguments[0]}"


# --- what is stored and signed -------------------------------------------------------------------


def tables() -> Iterator[str]:
    """Tables of the store, a line for each column."""
    for table in METADATA.sorted_tables:
        for column in table.columns:
            yield f"{table.fullname}.{column.name}: {column.type!r}"


def log_records() -> Iterator[str]:
    """Keys of an entry of the audit log, of each kind of record, and of what they hold; `?`: may be left out."""
    yield from (f"entry.{name}" for name in Entry.__struct_fields__)
    for kind in Record.__subclasses__():
        yield from _fields(kind, f"record {_type_of(kind)}")
    yield from _fields(Approval, "approval")
    yield from _fields(Decision, "decision")
    with tempfile.TemporaryDirectory() as folder, AuditLog(Path(folder) / "state") as log:
        log.rotate_key()
        for entry in log.read():
            yield from (f"record {entry.record['event']}.{key}" for key in entry.record)


def _type_of(kind: type[Record]) -> str:
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return str(defaults["type"])


def _fields(kind: type[msgspec.Struct], title: str) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        yield f"{title}.{field.encode_name}{'?' if field.default is msgspec.UNSET else ''}"


def receipts() -> Iterator[str]:
    """Keys of a receipt, and its version."""
    receipt = Receipt(entry=Entry(index=0, previous="", record={}), key="", proof="").to_dict()
    for key, value in receipt.items():
        yield f"{key} = {value}" if key == "receipt" else key


def lock_file() -> Iterator[str]:
    """Keys of the lines of `toolkeep.lock`: its head, an upstream, a tool."""
    pin = Pin(origin="mcp:shop", name="buy", definition_hash="", version="", definition={})
    written = write_lock(Lock(upstreams={pin.origin: {}}, tools={pin.key: pin}))
    for title, line in zip(("head", "upstream", "tool"), written.splitlines(), strict=True):
        yield from (f"{title}.{key}" for key in json.loads(line))


# --- what users write ----------------------------------------------------------------------------


def configuration_keys() -> Iterator[str]:
    """Every key of a configuration file, dotted; `NAME` and `[]` stand for what users choose."""
    yield from _keys(FILE_SCHEMA, "")


def custom_tool_keys() -> Iterator[str]:
    """Every key of a custom tool."""
    yield from _keys(editor_schema()["$defs"]["tool"], "")


def _keys(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    if prefix:
        yield prefix
    inside = dict(schema.get("properties", {}))
    if isinstance(schema.get("additionalProperties"), dict):
        inside["NAME"] = schema["additionalProperties"]
    if isinstance(schema.get("items"), dict):
        yield from _keys({**schema["items"], "items": None}, f"{prefix}[]")
    for name, value in inside.items():
        yield from _keys(value, f"{prefix}.{name}".lstrip(".")) if isinstance(value, dict) else ()
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from (key for key in _keys(part, prefix) if key != prefix)


def environment_variables() -> Iterator[str]:
    """Variables that the code of the host asks for by name, and every `TOOLKEEP_` name."""
    for tree in _trees_with("environ", "getenv", "TOOLKEEP_", besides=("attack", "inside")):
        yield from _variables(tree)


def _variables(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.lstrip("_").startswith("TOOLKEEP_") and node.value.isupper():
                yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in ("get", "getenv", "pop") and _is_environment(node.func.value):
                yield from _text(node.args[0])
        elif isinstance(node, ast.Subscript) and _is_environment(node.value):
            yield from _text(node.slice)


def _is_environment(node: ast.expr) -> bool:
    return ast.unparse(node).split(".")[-1] in ("environ", "environment", "os")


def _text(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def built_in_tools() -> Iterator[str]:
    """Built-in tools with their parameters; `*` marks one that a call must have."""
    with MemoryRegistry() as keep:
        keep.load(own=[CoreToolsProvider(list(ALLOWANCES)[-1])])
        for tool in keep.tools():
            schema: dict[str, Any] = dict(tool.definition.parameters)
            required = schema.get("required", ())
            names = (f"{name}*" if name in required else name for name in schema.get("properties", {}))
            yield f"{tool.name} {tool.definition.version}({', '.join(names)})"


def policies() -> Iterator[str]:
    """What a Cedar policy can name: types, actions, attributes, annotations by id, permissions."""
    schema = cedar_schema()[""]
    for kind, held in schema["entityTypes"].items():
        yield f"type {kind}"
        for name, value in held.get("shape", {}).get("attributes", {}).items():
            yield f"{kind}.{name}: {value['type']}"
    for action, held in schema["actions"].items():
        yield f"action {action}"
        for name, value in held["appliesTo"]["context"]["attributes"].items():
            yield f"action {action} context.{name}: {value['type']}"
    yield from (f"permission {name}" for name in KNOWN_PERMISSIONS)
    yield from (f"policy {policy.id}" for policy in read_policies([ALWAYS, WITHOUT_POLICIES]).policies)


# --- what is called from outside -----------------------------------------------------------------


def routes() -> Iterator[str]:
    """Every path of the server with methods, scopes, parameters, bodies and answers."""
    schemas = document(ROUTES)["components"]["schemas"]
    scopes = {(route.path, route.method.lower()): route.scopes for route in ROUTES}
    for path, methods in document(ROUTES)["paths"].items():
        for method, operation in methods.items():
            title = f"{method.upper()} {path}"
            yield f"{title} scopes: {', '.join(sorted(scope.value for scope in scopes[path, method])) or 'none'}"
            yield from (f"{title} {one['in']} {one['name']}" for one in operation.get("parameters", ()))
            yield from _body_fields(f"{title} body", operation.get("requestBody", {}), schemas)
            yield f"{title} answers: {', '.join(sorted(operation['responses']))}"
            for status, answer in operation["responses"].items():
                if int(status) < HTTPStatus.MULTIPLE_CHOICES:
                    yield from _body_fields(f"{title} {status}", answer, schemas)


def _body_fields(title: str, held: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    for media, inside in held.get("content", {}).items():
        yield f"{title} {media}"
        schema = inside.get("schema", {})
        while "$ref" in schema:
            schema = schemas[schema["$ref"].split("/")[-1]]
        yield from (f"{title} .{name}" for name in schema.get("properties", {}))


def scopes() -> Iterator[str]:
    """The scopes of tokens."""
    return (scope.value for scope in Scope)


def commands() -> Iterator[str]:
    """Every command with its arguments and options. They may change on purpose until 0.1.0."""
    return _commands(cli, click.Context(cli, info_name="toolkeep", **cli.context_settings), "toolkeep")


def _commands(command: click.Command, context: click.Context, words: str) -> Iterator[str]:
    yield words
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Argument):
            yield f"{words} {parameter.make_metavar(context)}"
        elif not getattr(parameter, "hidden", False):
            yield f"{words} {'/'.join((*parameter.opts, *parameter.secondary_opts))}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is None:
                raise LookupError(name)
            yield from _commands(
                inner, click.Context(inner, context, name, **inner.context_settings), f"{words} {name}"
            )


def entry_points() -> Iterator[str]:
    """The groups that other packages may offer something in, our own scripts, and extras to install."""
    yield f"group {GROUP}"
    held = importlib.metadata.distribution("toolkeep")
    yield from (f"{point.group} {point.name}" for point in held.entry_points)
    yield from (f"extra {name}" for name in held.metadata.get_all("Provides-Extra") or ())


def _trees_with(*words: str, besides: tuple[str, ...] = ()) -> Iterator[ast.Module]:
    """The modules whose text has one of the words; `besides` are packages whose code runs in a sandbox."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.relative_to(SOURCE).parts[0] not in besides and any(word in text for word in words):
            yield ast.parse(text)


_SECTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "error codes": error_codes,
    "events: log lines": event_log_lines,
    "events: webhook types": webhook_events,
    "loggers": loggers,
    "JSON log keys": json_log_keys,
    "metrics": metrics,
    "tables": tables,
    "audit log": log_records,
    "receipt": receipts,
    "toolkeep.lock keys": lock_file,
    "configuration keys": configuration_keys,
    "custom tool keys": custom_tool_keys,
    "environment variables": environment_variables,
    "built-in tools": built_in_tools,
    "policies": policies,
    "HTTP routes": routes,
    "token scopes": scopes,
    "commands": commands,
    "entry points and extras": entry_points,
}


# --- the copy ------------------------------------------------------------------------------------


class Change(NamedTuple):
    """What one section has more and less than the copy."""

    section: str
    added: list[str]
    lost: list[str]

    def __str__(self) -> str:
        lines = [f"The public face changed: {self.section}", *(f"  + {line}" for line in self.added)]
        lines += [f"  - {line}" for line in self.lost]
        why = "A line that is lost or changed breaks users: see docs/versioning.md. If it is meant, run"
        return "\n".join([*lines, why, f"    {RENEW}", "and commit tests/public_face.txt with the change."])


def change_of(section: str, now: Iterable[str], before: Iterable[str]) -> Change | None:
    """What changed in a section; None where nothing did."""
    added, lost = sorted(set(now) - set(before)), sorted(set(before) - set(now))
    return Change(section, added, lost) if added or lost else None


def write(face: dict[str, list[str]]) -> str:
    """The face as text: a heading for each section, a line for each fact."""
    parts = (
        f"## {title}\n" + "".join(f"{line}\n" for line in dict.fromkeys(lines))
        for title, lines in face.items()
    )
    return f"# Made by {RENEW}\n\n" + "\n".join(parts)


def read(text: str) -> dict[str, list[str]]:
    """The sections of a text that `write` made."""
    face: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("## "):
            face[line.removeprefix("## ")] = []
        elif line and not line.startswith("# "):
            face[list(face)[-1]].append(line)
    return face


def main() -> None:
    """Renew the copy, and say what changed."""
    now, before = collect(), read(SNAPSHOT.read_text(encoding="utf-8")) if SNAPSHOT.exists() else {}
    for section in sorted(now.keys() | before.keys()):
        if change := change_of(section, now.get(section, ()), before.get(section, ())):
            shown = "".join(f"  + {line}\n" for line in change.added) + "".join(
                f"  - {line}\n" for line in change.lost
            )
            sys.stdout.write(f"{section}\n{shown}")
    SNAPSHOT.write_text(write(now), encoding="utf-8")


if __name__ == "__main__":
    main()
