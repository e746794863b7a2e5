"""The rules of the profiles, read from the profiles' own file, and those of strict modes."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

PROFILES = {
    "anthropic": "anthropic",
    "openai": "openai_chat",
    "openai-responses": "openai_chat",
    "gemini": "gemini",
    "bedrock": "bedrock_converse",
    "mistral": "mistral",
    "cohere": "cohere_v2",
    "ollama": "ollama",
    "mcp": "mcp",
    "mcp-2025-11-25": "mcp",
}
SHAPES = {
    "anthropic": lambda data: (data["name"], data["input_schema"]),
    "openai": lambda data: (data["function"]["name"], data["function"]["parameters"]),
    "openai-responses": lambda data: (data["name"], data["parameters"]),
    "gemini": lambda data: (data["name"], data["parametersJsonSchema"]),
    "bedrock": lambda data: (data["toolSpec"]["name"], data["toolSpec"]["inputSchema"]["json"]),
    "mistral": lambda data: (data["function"]["name"], data["function"]["parameters"]),
    "cohere": lambda data: (data["function"]["name"], data["function"]["parameters"]),
    "ollama": lambda data: (data["function"]["name"], data["function"]["parameters"]),
    "json-schema": lambda data: (data["title"], data),
    "llguidance": lambda data: (data["name"], data["schema"]),
    "mcp": lambda data: (data["name"], data["inputSchema"]),
    "mcp-2025-11-25": lambda data: (data["name"], data["inputSchema"]),
}


_2020_12 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def broken_rules(provider: str, data: dict[str, Any], profiles: dict[str, Any]) -> Iterator[str]:
    """The rules of 2020-12 and of its profile that a definition breaks, at any depth."""
    name, schema = SHAPES[provider](data)
    if not jsonschema_rs.meta.is_valid({**schema, **_2020_12}):
        yield "not 2020-12"
    profile = profiles.get(PROFILES.get(provider, ""), {})
    if "name_regex" in profile and not re.fullmatch(profile["name_regex"]["value"], name):
        yield f"name {name!r}"
    root = profile.get("root", {})
    if root and schema.get("type") != root["type"]:
        yield "root type"
    yield from (
        f"{keyword} at the root" for keyword in root.get("forbidden_at_root", ()) if keyword in schema
    )
    keys = profile.get("property_key_regex_top_level")
    for key in schema.get("properties", {}) if keys else ():
        if not re.fullmatch(keys["value"], key):
            yield f"key {key!r}"
    known = _documented(profile)
    for part in schemas_in(schema):
        if profile.get("array_needs_items") and "array" in _types(part) and "items" not in part:
            yield "array without items"
        yield from (f"keyword {keyword}" for keyword in part if known and keyword not in known)


def _documented(profile: dict[str, Any]) -> set[str]:
    """The keywords that the vendor documents; empty: it documents JSON Schema."""
    listed = profile.get("parameters_json_schema", {}).get("supported_documented_for_response_json_schema")
    return {word.split("(")[0] for word in listed or profile.get("server_keeps", ())}


def _types(schema: dict[str, Any]) -> list[str]:
    declared = schema.get("type", [])
    return [declared] if isinstance(declared, str) else declared


_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLE = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all inside it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in _NAMED:
        for inside in schema.get(keyword, {}).values():
            yield from schemas_in(inside)
    for keyword in _LISTED:
        for inside in schema.get(keyword, []):
            yield from schemas_in(inside)
    for keyword in _SINGLE:
        yield from schemas_in(schema.get(keyword))


_OPENAI_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
_OPENAI_KEYWORDS = {
    "type", "properties", "required", "additionalProperties", "description", "enum", "anyOf", "items", "$ref", "$defs",
    "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems",
    "maxItems",
}  # fmt: skip


def broken_strict_rules(schema: dict[str, Any]) -> Iterator[str]:
    """What OpenAI's strict mode would refuse."""
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "root"
    for part in schemas_in(schema):
        yield from (f"keyword {keyword}" for keyword in part if keyword not in _OPENAI_KEYWORDS)
        if "object" in _types(part):
            if part.get("additionalProperties") is not False:
                yield "open object"
            if list(part.get("properties", {})) != part.get("required"):
                yield "optional property"
        if "format" in part and part["format"] not in _OPENAI_FORMATS:
            yield "format"
        if not {"type", "anyOf", "$ref"} & set(part):
            yield "untyped"
        if "array" in _types(part) and not isinstance(part.get("items"), dict):
            yield "array without items"
    for reference in (part["$ref"] for part in schemas_in(schema) if "$ref" in part):
        if reference.removeprefix("#/$defs/") not in schema.get("$defs", {}):
            yield "dangling reference"


_CLAUDE_FORMATS = _OPENAI_FORMATS | {"uri"}
_CLAUDE_KEYWORDS = {
    "type", "properties", "required", "additionalProperties", "description", "title", "enum", "const", "anyOf",
    "items", "$ref", "$defs", "pattern", "format", "default", "minItems",
}  # fmt: skip


def broken_claude_rules(schema: dict[str, Any]) -> Iterator[str]:
    """What Claude's strict mode would refuse."""
    for part in schemas_in(schema):
        yield from (f"keyword {keyword}" for keyword in part if keyword not in _CLAUDE_KEYWORDS)
        if "object" in _types(part) and part.get("additionalProperties") is not False:
            yield "open object"
        if "format" in part and part["format"] not in _CLAUDE_FORMATS:
            yield "format"
        if part.get("minItems", 0) not in (0, 1):
            yield "minItems"
        if any(isinstance(value, (dict, list)) for value in part.get("enum", ())):
            yield "complex enum"
