"""The body of an operation: which media type is sent, what the model provides for it, and how it is encoded.

JSON, forms, forms with files, text, the bytes of a file, and XML as text, in this order. For a file the model
provides an object with `content` in base64, or `text`, and `file_name`. What cannot be sent is `Refused`.
"""

from typing import Any, Final

import msgspec

from toolkeep.limits import UPLOAD_BYTES
from toolkeep.network.multipart import MEDIA_TYPE, MULTIPART
from toolkeep.network.parameter_styles import STYLES
from toolkeep.sources.openapi.document import Document, Refused
from toolkeep.text.display import echo, echo_name

FORM: Final = "application/x-www-form-urlencoded"
_FILES: Final = ("image/", "audio/", "video/", "font/", "application/")
_XML: Final = ("/xml", "+xml")
_NOT_FILES: Final = ("application/xml", "application/graphql", FORM)
_BINARY: Final = tuple(
    f"application/{name}"
    for name in (
        "octet-stream",
        "pdf",
        "zip",
        "gzip",
        "x-gzip",
        "x-tar",
        "x-7z",
        "msword",
        "vnd.ms-",
        "vnd.openxml",
    )
)
_PARTS: Final = 50
"""Schemas that a form may be composed of."""


class BodyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The schema of a body among the arguments, and how it is sent."""

    schema: Any
    """As in the document, with files replaced by what a model provides."""
    content_type: str
    sending: dict[str, Any] = {}
    """More for `network.http_endpoint.Body`."""


def plan_body(document: Document, content: dict[str, Any]) -> BodyPlan:
    """The body that is sent, of those that the operation accepts."""
    plain = {str(kind).partition(";")[0].strip().lower(): media for kind, media in content.items()}
    for kind, media in plain.items():
        if is_json(kind):
            return BodyPlan(schema=_schema(media), content_type="application/json" if "*" in kind else kind)
    reasons = []
    for kind, make in ((FORM, _form), (MULTIPART, _multipart)):
        if kind in plain:
            try:
                return make(document, plain[kind])
            except Refused as refused:
                reasons.append(refused)
    if reasons:
        raise reasons[-1]
    return _text_or_file(document, plain)


def is_json(kind: Any) -> bool:
    """Whether a media type is written as JSON."""
    plain = str(kind).partition(";")[0].strip().lower()
    return plain in ("application/json", "*/*", "application/*") or plain.endswith("+json")


def is_binary(kind: str) -> bool:
    """Whether a media type is binary."""
    return is_file(kind) and (not kind.startswith("application/") or kind.startswith(_BINARY))


def is_file(kind: str) -> bool:
    """Whether a body of this media type is sent as a file."""
    return kind.startswith(_FILES) and kind not in _NOT_FILES and not kind.endswith(("+xml", "+json", "*"))


def _text_or_file(document: Document, plain: dict[str, Any]) -> BodyPlan:
    for kind, media in plain.items():
        is_text = kind.startswith("text/") and MEDIA_TYPE.fullmatch(kind)
        if is_text and _takes_text(document, _schema(media)):
            return BodyPlan(schema=_schema(media), content_type=kind)
    for kind in plain:
        if is_file(kind) and MEDIA_TYPE.fullmatch(kind):
            return BodyPlan(schema=_FILE, content_type=kind, sending={"file": True})
    for kind in plain:
        if kind.endswith(_XML):
            return BodyPlan(schema=_XML_TEXT, content_type=kind)
    kinds = ", ".join(echo_name(kind) for kind in list(plain)[:3])
    raise Refused(f"takes a body of {kinds}; JSON, forms, text, XML and files can be sent")


def _takes_text(document: Document, schema: Any) -> bool:
    found = document.followed(schema)
    declared = found.get("type") if isinstance(found, dict) else None
    return declared in (None, "string") or (isinstance(declared, list) and "string" in declared)


def _form(document: Document, media: Any) -> BodyPlan:
    """A form without files: the encoding of its fields, if not the usual one."""
    schema, fields = _schema(media), dict[str, Any]()
    for name, field in _form_fields(document, schema).items():
        if _file_in(document, field) is not None:
            raise Refused(f"has the file {echo_name(name)} in a form that cannot carry files")
    for name, stated in _object(_object(media).get("encoding")).items():
        how = _object(stated)
        style = "json" if is_json(how.get("contentType", "")) else how.get("style", "")
        if not style and not {"explode", "allowReserved"} & how.keys():
            continue
        style = style or "form"
        if style not in STYLES["query"]:
            raise Refused(f"has the field {echo_name(str(name))} in the style {echo(style)}")
        explode = how.get("explode", style in ("form", "deepObject")) is True
        fields[str(name)] = {"in": "query", "name": str(name), "style": style, "explode": explode}
        if how.get("allowReserved") is True:
            fields[str(name)]["reserved"] = True
    return BodyPlan(schema=schema, content_type=FORM, sending={"fields": fields} if fields else {})


def _multipart(document: Document, media: Any) -> BodyPlan:
    """A form whose fields are parts, some of them files."""
    schema = _schema(media)
    properties, encoding = _properties(document, schema), _object(_object(media).get("encoding"))
    parts: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for name, field in properties.items():
        how = _object(encoding.get(name))
        _refuse_encoding(name, how)
        stated = _stated_type(how)
        file = _file_in(document, field)
        shown[name] = field if file is None else file
        if file is not None:
            parts[name] = {"kind": "file", "content_type": stated or _media_type(document, field)}
        elif is_json(stated):
            parts[name] = {"kind": "json", "content_type": stated, "whole": True}
        elif stated:
            parts[name] = {"kind": "text", "content_type": stated}
    if properties:
        schema = {**_flat(document, schema), "properties": shown}
    return BodyPlan(schema=schema, content_type=MULTIPART, sending={"parts": parts} if parts else {})


def _refuse_encoding(name: str, how: dict[str, Any]) -> None:
    headers = _object(how.get("headers"))
    if any(_object(header).get("required") is True for header in headers.values()):
        raise Refused(f"has the field {echo_name(name)} with headers of its own")
    if how.get("style", "form") != "form" or how.get("explode", True) is not True:
        raise Refused(f"has the field {echo_name(name)} in a style that a form with files does not have here")


def _stated_type(how: dict[str, Any]) -> str:
    """The first complete media type of those that a field may have."""
    listed = [kind.partition(";")[0].strip().lower() for kind in str(how.get("contentType", "")).split(",")]
    return next((kind for kind in listed if "*" not in kind and MEDIA_TYPE.fullmatch(kind)), "")


def _media_type(document: Document, field: Any) -> str:
    found = document.followed(field)
    stated = str(found.get("contentMediaType", "")).lower() if isinstance(found, dict) else ""
    return stated if MEDIA_TYPE.fullmatch(stated) else "application/octet-stream"


def _properties(document: Document, schema: Any) -> dict[str, Any]:
    return {str(name): field for name, field in _object(_flat(document, schema).get("properties")).items()}


def _form_fields(document: Document, schema: Any) -> dict[str, Any]:
    """The known fields of a form; one with alternatives is checked as a whole, when it is sent."""
    try:
        return _properties(document, schema)
    except Refused:
        return {}


def _flat(document: Document, schema: Any) -> dict[str, Any]:
    """An object with its fields merged from what it is composed of."""
    waiting, made, count = [schema], dict[str, Any](), 0
    properties: dict[str, Any] = {}
    required: list[Any] = []
    while waiting:
        found = document.followed(waiting.pop(0))
        found = {} if found is True else found
        count += 1
        if not isinstance(found, dict) or count > _PARTS:
            raise Refused("has a form that is not an object of fields")
        if any(keyword in found for keyword in ("anyOf", "oneOf", "not", "if")):
            raise Refused("has a form with alternatives, whose fields cannot be listed")
        waiting += found.get("allOf") or []
        properties |= _object(found.get("properties"))
        listed = found.get("required")
        required += listed if isinstance(listed, list) else []
        made |= {k: v for k, v in found.items() if k not in ("allOf", "properties", "required", "$ref")}
    made["properties"] = properties
    if required:
        made["required"] = list(dict.fromkeys(name for name in required if isinstance(name, str)))
    return made


def _file_in(document: Document, field: Any) -> Any:
    """The schema of a field that is a file, or a list of files; None for any other field."""
    found = document.followed(field)
    if not isinstance(found, dict):
        return None
    if _is_bytes(found):
        return _described(_FILE, found)
    if found.get("type") == "array" and (item := _file_in(document, found.get("items"))) is not None:
        kept = {key: found[key] for key in ("minItems", "maxItems", "description") if key in found}
        return {"type": "array", "items": item, **kept}
    for keyword in ("anyOf", "oneOf"):
        files = [_file_in(document, part) for part in found.get(keyword) or () if not _is_null(part)]
        if len(files) == 1 and files[0] is not None:
            return _described(files[0], found)
        if any(file is not None for file in files):
            raise Refused("has a field that is a file or something else")
    return None


def _is_bytes(schema: dict[str, Any]) -> bool:
    """3.0 says `format: binary`; 3.1 a content media type that is no text and not encoded."""
    declared = schema.get("type", "string")
    if declared != "string" and not (isinstance(declared, list) and "string" in declared):
        return False
    media = str(schema.get("contentMediaType", "")).lower()
    return schema.get("format") == "binary" or ("contentEncoding" not in schema and is_file(media))


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _described(file: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    words = schema.get("description")
    return {**file, "description": words} if isinstance(words, str) and words.strip() else file


def _schema(media: Any) -> Any:
    return _object(media).get("schema", True)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_XML_TEXT: Final[dict[str, Any]] = {"type": "string", "description": "An XML document."}
_FILE: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A file: its content in base64, or its text.",
    "properties": {
        "content": {
            "type": "string",
            "description": "The bytes of the file in base64.",
            "contentEncoding": "base64",
            "maxLength": (UPLOAD_BYTES + 2) // 3 * 4,
        },
        "text": {"type": "string", "description": "A text file as it is.", "maxLength": UPLOAD_BYTES},
        "file_name": {"type": "string", "description": "What the file is called.", "maxLength": 128},
    },
    "additionalProperties": False,
}
