"""The JSON Schema of the configuration file: what files are checked against, and what editors read.

`FILE_SCHEMA` decides. It leaves custom tools open, because a bad tool is skipped and a bad file is not.
`editor_schema` is the same with custom tools described.
"""

from typing import Any

from toolkeep.config.fleet_settings import FLEET, WORKER
from toolkeep.config.identity_settings import IDENTITY
from toolkeep.definitions.serialization import OTHER_SPELLINGS
from toolkeep.definitions.tool import KEYS
from toolkeep.definitions.vocabulary import (
    Category,
    Danger,
    Determinism,
    Isolation,
    Normalization,
    ResultType,
    Role,
    SideEffect,
    Word,
    snake_case,
)
from toolkeep.flow.measures import MEASURES
from toolkeep.limits import UNDO_DAYS, WEBHOOK_SECRET_CHARS
from toolkeep.mcp_protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSIONS

Schema = dict[str, Any]

WEBHOOK_EVENTS = (
    "ToolDefinitionCreatedEvent", "ToolDefinitionUpdatedEvent", "ToolDefinitionDeletedEvent",
    "ToolDefinitionValidatedEvent", "ToolQuarantined", "ApprovalRequested", "ApprovalDecided", "AgentDrifted",
)  # fmt: skip
"""The events that a webhook can receive."""

_TOOLS: Schema = {
    "type": "array",
    "description": "Tools of your own. Each names what runs it, or is executed by the client.",
    "items": {"$ref": "#/$defs/tool"},
}
_NOTE_KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 1024}
_NAMES: Schema = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 128}}
_DISABLED = {
    "type": "array",
    "items": {
        "type": "string",
        "pattern": "^((prompt|resource):)?[A-Za-z0-9_-]+(@[0-9A-Za-z.+-]+)?$",
        "maxLength": 128,
    },
    "description": "Disabled tools: `name` for all versions, or `name@version`.",
}


def _count(description: str) -> Schema:
    return {"type": "integer", "minimum": 1, "maximum": 2**31, "description": description}


_TOOL_REGISTRY: Schema = {
    "type": "object",
    "description": "How tools are registered and their calls are checked.",
    "properties": {
        "strict_mode": {"type": "boolean", "description": "Always true; false is an error."},
        "cache_compiled_schemas": {"type": "boolean", "description": "Always true; false is an error."},
        "max_schema_size": _count("Bytes of a schema, by default 51200."),
        "max_schema_depth": _count("Nesting of a schema, by default 20."),
        "max_argument_size": _count("Bytes of a call's arguments, by default 1048576."),
        "max_argument_depth": _count("Nesting of a call's arguments, by default 64."),
        "max_fanout": _count("Subschemas that one value may be checked against, by default 256."),
        "max_work": _count("Steps that checking one call may take, by default 300000."),
        "max_errors": _count("Errors in one refusal, by default 50."),
        "pattern_timeout_ms": _count("Has no effect: patterns run in linear time and need no clock."),
        "validation_failure_log_level": {
            "enum": ["debug", "info", "warning", "error"],
            "description": "Log level of refused calls, by default warning.",
        },
        "include_actual_values": {
            "type": "boolean",
            "description": "Whether errors may show argument values, by default true.",
        },
        "providers": {
            **_NAMES,
            "description": "Providers of other packages (entry points `toolkeep.providers`) that may run.",
        },
        "custom_tools": _TOOLS,
        "disabled_tools": _DISABLED,
    },
}

_WHERE: Schema = {"type": "string", "minLength": 1, "maxLength": 4096}
_BETWEEN_CALLS: Schema = {
    "enum": ["running", "stopped"],
    "description": "Whether the program's processes keep running between calls; by default they do.",
}
_UPSTREAM: Schema = {
    "type": "object",
    "description": "An HTTP API with an OpenAPI document, or an MCP server.",
    "properties": {
        "mcp": {**_WHERE, "description": "Path of the list of its tools, which `toolkeep add mcp` writes."},
        "command": {**_NAMES, "description": "The program of an MCP server and its arguments; no shell."},
        "environment": {
            "type": "object",
            "maxProperties": 100,
            "additionalProperties": {"type": "string", "maxLength": 4096},
            "description": "Variables of the program; {secret:NAME} is filled with a secret.",
        },
        "code": {**_NAMES, "description": "Folders and files that the program is made of."},
        "idle_s": {"type": "number", "description": "Seconds without a call after which it ends."},
        "between_calls": _BETWEEN_CALLS,
        "start_timeout_s": {
            "type": "number",
            "minimum": 1,
            "maximum": 600,
            "description": "Seconds that an MCP server may take to start and list its tools, by default 30.",
        },
        "protocol": {
            "enum": [*HANDSHAKE_VERSIONS, *MODERN_VERSIONS],
            "description": "MCP version of the server; negotiated by default.",
        },
        "headers": {
            "type": "object",
            "maxProperties": 50,
            "additionalProperties": {"type": "string", "maxLength": 4096},
            "description": "Headers of requests to an MCP server; {secret:NAME} is filled with a secret.",
        },
        "oauth": {
            "type": "object",
            "description": "Send an OAuth token to an MCP server at an address; see `toolkeep sign-in`.",
            "properties": {
                "client_id": {
                    **_WHERE,
                    "description": "OAuth client id, for authorization servers without dynamic registration.",
                },
                "client_secret": {**_WHERE, "description": "Name of the client secret in `secrets`."},
                "issuer": {
                    **_WHERE,
                    "pattern": "^https://[^/@?#]+(/[^?#]*)?$",
                    "description": "The only accepted OAuth authorization server (issuer).",
                },
                "grant": {
                    "enum": ["authorization_code", "client_credentials"],
                    "description": "OAuth grant type: a person signs in (default), or the client itself.",
                },
                "scope": {
                    **_WHERE,
                    "description": "OAuth scopes to request in addition to those that the server requires.",
                },
            },
            "additionalProperties": False,
        },
        "capabilities": {**_NAMES, "description": "Capabilities of an MCP server, such as fs.read:./docs."},
        "tools": {**_NAMES, "description": "Import only these tools, by the server's names; all by default."},
        "prompts": {
            **_NAMES,
            "description": "The prompts of an MCP server to pass on, as patterns; `*` is all.",
        },
        "resources": {**_NAMES, "description": "The resources to pass on, as patterns of URIs; `*` is all."},
        "completions": {
            **_NAMES,
            "description": "Where to complete arguments: patterns of `prompt:NAME` and `resource:TEMPLATE`.",
        },
        "subscriptions": {
            **_NAMES,
            "description": "The passed on resources that agents may subscribe to, as patterns of URIs.",
        },
        "openapi": {**_WHERE, "description": "Path of the document, from the folder of this file."},
        "url": {
            **_WHERE,
            "pattern": "^https?://[^/@?#]+(/[^?#]*)?$",
            "description": "Where calls go, whatever the document says, such as https://api.example.org/v1.",
        },
        "operations": {
            **_NAMES,
            "maxItems": 2000,
            "description": "Only these operations, by their name in the document; all by default.",
        },
        "danger": {
            "type": "object",
            "description": "Danger of an operation or tool, by its name there; "
            "`prompt:PATTERN`, `resource:PATTERN`, `completion:*` and `subscription:*` for what a server "
            "passes on.",
            "additionalProperties": {"enum": ["safe", "low", "medium", "high", "critical"]},
        },
        "effects": {
            "type": "object",
            "description": "Side effects of an operation or tool, by its name there.",
            "additionalProperties": {"enum": ["reads", "writes"]},
        },
        "flow": {
            "type": "object",
            "description": "Roles of arguments and labels of results, by the name of the tool and the "
            "argument's JSON Pointer; `result` holds the labels.",
            "additionalProperties": {
                "type": "object",
                "properties": {"result": {"type": "object", "description": "Labels by JSON Pointer."}},
                "additionalProperties": {"enum": [role.value for role in Role]},
            },
        },
        "check_answers": {
            "type": "boolean",
            "description": "Whether responses must match the document, by default true.",
        },
        "secrets": {
            "type": "object",
            "description": "Where each secret is read from, by the name of its security scheme.",
            "maxProperties": 100,
            "additionalProperties": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "properties": {
                    "env": {**_WHERE, "description": "An environment variable."},
                    "file": {**_WHERE, "pattern": "^[/~]", "description": "A file, by its whole path or ~/."},
                    "keyring": {**_WHERE, "pattern": "^[^/]+/.+$", "description": "service/name."},
                    "stored": {
                        **_WHERE,
                        "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
                        "description": "Its name in the state folder, where `add mcp --from` put it.",
                    },
                },
            },
        },
    },
}

FILE_SCHEMA: Schema = {
    "type": "object",
    "description": "Configuration of toolkeep: .agent/config.yml of a project or of a user.",
    "properties": {
        "tier": {
            "enum": ["core", "writer_pro", "teams", "enterprise", "Core", "WriterPro", "Teams", "Enterprise"],
            "description": "Feature tier, by default enterprise, which has everything.",
        },
        "features": {
            "type": "object",
            "description": "Features that can be switched off.",
            "properties": {
                "tools": {
                    "type": "object",
                    "description": "Features about tools.",
                    "properties": {
                        "definition": {
                            "type": "boolean",
                            "description": "Whether custom definitions can be created and edited.",
                        }
                    },
                }
            },
        },
        "tool_registry": _TOOL_REGISTRY,
        "tools": {
            "type": ["array", "object"],
            "description": "Python files or modules of @tool functions; or another place for custom tools.",
            "items": {
                "type": "string",
                "minLength": 1,
                "maxLength": 4096,
                # Without variables: what is accepted is the code of the file that stands here.
                "pattern": "^[^$]*$",
            },
            "maxItems": 100,
            "properties": {"custom": _TOOLS, "custom_tools": _TOOLS},
        },
        "disabled_tools": _DISABLED,
        "permissions": {
            "type": "array",
            "description": "Permissions of your own, beside the known ones.",
            "items": {"type": "string", "minLength": 1, "maxLength": 128},
        },
        "drift": {
            "type": "boolean",
            "default": False,
            "description": "Whether to tell when an agent does what it never did before.",
        },
        "undo": {
            "type": "object",
            "description": "How calls that write files can be taken back.",
            "properties": {
                "days": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": 365,
                    "default": UNDO_DAYS,
                    "description": "How long what built-in tools replace in files is kept; 0 keeps nothing.",
                },
            },
        },
        "audit": {
            "type": "object",
            "description": "Where checkpoints of the log are published, and who cosigns them.",
            "properties": {
                "checkpoint_file": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4096,
                    "description": "A file elsewhere that always holds the newest checkpoint.",
                },
                "checkpoint_webhook": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4096,
                    "pattern": r"^(https://|http://(127\.0\.0\.1|\[::1\]|localhost)[:/])",
                    "description": "A URL that each new checkpoint is posted to: https, or this machine.",
                },
                "witnesses": {
                    "type": "array",
                    "maxItems": 15,  # with the log's own, sixteen signatures fit into a note
                    "description": "Witnesses that cosign the checkpoints of the log.",
                    "items": {
                        "type": "object",
                        "required": ["url", "key"],
                        "properties": {
                            "url": {
                                "type": "string",
                                "minLength": 1,
                                "maxLength": 4096,
                                "pattern": r"^(https://|http://(127\.0\.0\.1|\[::1\])[:/])[^?#]*$",
                                "description": "The URL before /add-checkpoint: https, or this machine.",
                            },
                            "key": {**_NOTE_KEY, "description": "The public key of the witness."},
                        },
                    },
                },
                "witness_for": {
                    "type": "array",
                    "maxItems": 1000,
                    "description": "Public keys of the logs that `toolkeep serve` cosigns as a witness.",
                    "items": _NOTE_KEY,
                },
            },
        },
        "web_search": {
            "type": "object",
            "description": "The search engine of the tool web_search.",
            "properties": {
                "url": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4096,
                    "pattern": "^https://[^/@?#]+/[^?#]*$",
                    "description": "URL of a SearXNG instance that returns JSON, such as https://search.example.org/search.",
                },
            },
        },
        "database": {
            "type": "object",
            "description": "A PostgreSQL that several servers share, instead of files in the state folder.",
            "required": ["url"],
            "properties": {
                "url": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4096,
                    "pattern": "^postgres(ql)?://",
                    "writeOnly": True,
                    "description": "postgresql://USER@HOST/DATABASE; several hosts are tried in turn.",
                },
                "key": {
                    "type": "string",
                    "minLength": WEBHOOK_SECRET_CHARS,
                    "maxLength": 1024,
                    "writeOnly": True,
                    "description": "Authenticates what the servers store, the same for all; best a variable.",
                },
                "key_file": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4096,
                    "description": "A file that holds the key, instead of `key`.",
                },
                "single": {
                    "type": "boolean",
                    "description": "Whether the database has no replica, so that no failover loses anything.",
                },
            },
        },
        "fleet": FLEET,
        "worker": WORKER,
        "identity": IDENTITY,
        "events": {
            "type": "object",
            "description": "Where events are sent.",
            "properties": {
                "webhook": {
                    "type": "object",
                    "description": "Events are posted to a URL as CloudEvents, signed.",
                    "required": ["url", "secret"],
                    "properties": {
                        "url": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 4096,
                            "pattern": "^https://[^/@?#]+(/[^#]*)?$",
                            "description": "Where to; its addresses must be public.",
                        },
                        "secret": {
                            "type": "string",
                            "minLength": WEBHOOK_SECRET_CHARS,
                            "maxLength": 1024,
                            "writeOnly": True,
                            "description": "Signs what is posted; best a variable, ${NAME}.",
                        },
                        "types": {
                            "type": "array",
                            "items": {"enum": list(WEBHOOK_EVENTS)},
                            "description": "Which events; by default all of these.",
                        },
                    },
                },
            },
        },
        "policies": {
            "type": "array",
            "description": "Files of Cedar policies, relative to the folder of this file.",
            "maxItems": 100,
            "items": {"type": "string", "minLength": 1, "maxLength": 4096},
        },
        "approvals": {
            "type": "object",
            "description": "When a call needs approval, and how long it waits.",
            "properties": {
                "wait": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": 86_400,
                    "description": "Seconds that a call waits for `toolkeep approve`; 0: refused at once.",
                },
                "paranoid": {
                    "type": "boolean",
                    "description": "Whether calls of low danger need approval too.",
                },
            },
        },
        "flow": {
            "type": "object",
            "description": "Guards what passes between calls.",
            "properties": {
                "policy": {
                    "enum": ["standard"],
                    "description": "The shipped policies to use beside your own.",
                },
                "spare": {
                    "enum": ["medium"],
                    "description": "Medium calls that the shipped policies let pass need no approval.",
                },
                "view": {
                    "enum": ["plain", "typed"],
                    "description": "What models are shown of results: all, or references to texts of others.",
                },
                "idle_s": {
                    "type": "number",
                    "minimum": 60,
                    "maximum": 31_536_000,
                    "description": "Seconds without a call after which a remote caller begins anew.",
                },
                "measures": {
                    "type": "object",
                    "description": "What policies may read of earlier calls, by name.",
                    "maxProperties": MEASURES,
                    "additionalProperties": {
                        "type": "object",
                        "required": ["over"],
                        "properties": {
                            "count": {
                                "type": "string",
                                "description": "The calls of a tool, or `calls` or `questions` of all.",
                            },
                            "sum": {
                                "type": "string",
                                "description": "TOOL/PARAMETER, or `result_bytes` or `run_seconds` of all.",
                            },
                            "over": {
                                "type": "string",
                                "description": "`session`, or the time window of an agent: `hour`, `24h`.",
                            },
                        },
                        "additionalProperties": False,
                    },
                },
                "budget": {
                    "type": "object",
                    "description": "Limits of measures that no approval lifts: `calls: 200/hour`.",
                    "maxProperties": MEASURES,
                    "additionalProperties": {
                        "type": ["string", "number"],
                        "description": "A number, and over what: `200/hour`.",
                    },
                },
            },
            "dependentRequired": {"spare": ["policy"]},
        },
        "unconfined": {
            "type": "array",
            "description": "What runs unconfined where a machine cannot confine it: names of built-in and "
            "configured tools and of upstream servers, paths or modules of files of tools.",
            "items": {"type": "string", "minLength": 1, "maxLength": 4096},
            "maxItems": 100,
        },
        "upstreams": {
            "type": "object",
            "description": "Servers whose tools are imported, by a name of yours.",
            "propertyNames": {"type": "string", "pattern": "^[a-z][a-z0-9_-]*$", "maxLength": 32},
            "maxProperties": 100,
            "additionalProperties": _UPSTREAM,
        },
        "agents": {
            "type": "object",
            "description": "Capabilities and permissions of each agent, by its name.",
            "propertyNames": {"type": "string", "minLength": 1, "maxLength": 64},
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "description": {
                        "type": "string",
                        "maxLength": 1024,
                        "description": "What the agent is for.",
                    },
                    "inherit": {
                        "enum": ["defaults"],
                        "description": "Inherit the default grants, and add the following.",
                    },
                    "capabilities": {
                        "type": "array",
                        "description": "Such as fs.read:./docs or net.read:example.org.",
                        "items": {"type": "string", "maxLength": 4096},
                    },
                    "permissions": {
                        "type": "array",
                        "description": "Such as tool.filesystem.read.",
                        "items": {"type": "string", "maxLength": 128},
                    },
                },
            },
        },
    },
    "$defs": {"tool": {"type": "object", "additionalProperties": True}},
}


def editor_schema() -> Schema:
    """The schema with custom tools described, for editors that read `yaml-language-server` comments."""
    schema = _closed({**FILE_SCHEMA, "$defs": {"tool": _tool()}})
    for key in ("strict_mode", "cache_compiled_schemas"):
        schema["properties"]["tool_registry"]["properties"][key]["const"] = True
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "toolkeep configuration",
        **schema,
    }


def _closed(schema: Schema) -> Schema:
    """Close objects that list their properties, as the check does."""
    closed = {key: _closed(value) if isinstance(value, dict) else value for key, value in schema.items()}
    if "object" in closed.get("type", ()) and "properties" in closed:
        closed["additionalProperties"] = False
    return closed


def _words(kind: type[Word]) -> Schema:
    """The words of an enum as data may spell them: file_system or FileSystem."""
    snake = [snake_case(member.value) for member in kind]
    pascal = ["".join(map(str.capitalize, word.split("_"))) for word in snake]
    return {"enum": [*snake, *pascal]}


def _tool() -> Schema:
    text, boolean, texts = (
        {"type": "string"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}},
    )
    anything = {"type": "object"}
    described: dict[str, Schema] = {
        "name": {"type": "string", "pattern": "^[a-z][a-z0-9_]*$", "maxLength": 64},
        "description": {"type": "string", "maxLength": 1024},
        "version": {"type": "string", "description": "A semantic version, in quotes: '1.0.0'."},
        "category": {"enum": [*_words(Category)["enum"], "web", "data"]},
        "parameters": {"type": ["object", "array"], "description": "A JSON Schema, or a list of parameters."},
        "output_schema": anything,
        "result_type": _words(ResultType),
        "normalization": _words(Normalization),
        "constraints": {
            "type": "object",
            "properties": {
                "max_execution_time": {"type": "number", "minimum": 1, "maximum": 600},
                "max_output_size": {"type": "integer"},
                "allow_side_effects": boolean,
                "required_isolation": _words(Isolation),
                "runs_on": {"type": "string", "maxLength": 64},
            },
        },
        "resource_bounds": {
            "type": "object",
            "properties": {
                "max_memory": {"type": "integer", "minimum": 1},
                "max_cpu": {"type": "number", "exclusiveMinimum": 0},
                "max_network": {
                    "type": "object",
                    "required": ["max_requests", "max_bytes"],
                    "properties": {
                        "max_requests": {"type": "integer", "minimum": 1},
                        "max_bytes": {"type": "integer", "minimum": 1},
                    },
                },
            },
        },
        "required_permissions": texts,
        "capabilities": texts,
        "side_effects": {
            "anyOf": [
                {"enum": ["none", "reads", "writes"]},
                {"type": "array", "items": _words(SideEffect)},
            ]
        },
        "flow": {"type": "object", "description": "Labels of the result by JSON Pointer."},
        "determinism": _words(Determinism),
        "danger": _words(Danger),
        "usage_metadata": text,
        "aliases": texts,
        "metadata": anything,
    }
    flags = ("idempotent", "requires_confirmation", "sensitive", "client_executed", "enabled")
    described |= dict.fromkeys(flags, boolean)
    properties = {key: described[key] for key in KEYS if key in described}
    properties |= {other: described[key] for other, key in OTHER_SPELLINGS.items()}
    run: Schema = {
        "type": "object",
        "description": "What runs the tool; exactly one of these.",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {
            "python": {"type": "string", "description": "module:function, imported by a sandboxed worker."},
            "command": {**texts, "minItems": 1, "description": "Program and arguments; no shell."},
            "process": {
                "type": ["array", "object"],
                "items": text,
                "minItems": 1,
                "required": ["argv"],
                "properties": {
                    "argv": {**texts, "minItems": 1, "description": "Program and arguments; no shell."},
                    "environment": {
                        "type": "object",
                        "additionalProperties": text,
                        "description": "Variables; {secret:NAME} is filled with a secret of the tool.",
                    },
                    "code": {**texts, "description": "Folders and files that the program is made of."},
                    "idle_s": {
                        "type": "number",
                        "minimum": 1,
                        "maximum": 86400,
                        "description": "Seconds without a call after which the program ends.",
                    },
                    "between_calls": _BETWEEN_CALLS,
                },
                "additionalProperties": False,
                "description": "A persistent program: argv, or an object with argv.",
            },
            "http": {
                "type": ["string", "object"],
                "required": ["url"],
                "description": "A URL that takes the arguments, or an object with url, method and headers.",
            },
            "wasm": {
                "type": ["string", "object"],
                "required": ["path"],
                "properties": {
                    "path": {"type": "string", "description": "Path of a WASM module or WASI command."},
                    "output": {"enum": ["json", "text"], "description": "How its output is parsed."},
                    "fuel": {"type": "integer", "minimum": 1, "description": "Instructions of one call."},
                },
                "additionalProperties": False,
                "description": "Path of a WASM module or WASI command, or an object with path.",
            },
        },
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "required": ["name", "description", "version"],
        "properties": {**properties, "run": run},
        "additionalProperties": False,
    }
