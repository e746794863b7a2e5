"""Convert a Swagger 2.0 document to OpenAPI 3.0, as data.

In: untrusted data. Out: data with the same operations, which is checked as any 3.0 document is. What has no
counterpart (`collectionFormat: tsv`) is passed on under a word that the import refuses by name.
"""

from typing import Any, Final

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

_MOVED: Final = {
    "#/definitions/": "#/components/schemas/",
    "#/responses/": "#/components/responses/",
    "#/parameters/": "#/components/parameters/",
}
_OF_SCHEMA: Final = frozenset(
    (
        "type", "format", "items", "default", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
        "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "enum", "multipleOf",
        "x-nullable",
    )
)  # fmt: skip
"""Keywords that a 2.0 parameter holds itself and a 3.0 parameter below `schema`."""
_STYLES: Final = {"csv": ("form", False), "multi": ("form", True), "ssv": ("spaceDelimited", False)} | {
    "pipes": ("pipeDelimited", False)
}
_FLOWS: Final = {"application": "clientCredentials", "accessCode": "authorizationCode"}
_MULTIPART: Final = "multipart/form-data"
_FORM: Final = "application/x-www-form-urlencoded"


def from_swagger(data: dict[str, Any]) -> dict[str, Any]:
    """The document in the form of OpenAPI 3.0."""
    return _Conversion(data).document()


class _Conversion:
    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self._parameters = _object(data.get("parameters"))

    def document(self) -> dict[str, Any]:
        data = self._data
        components = {
            "schemas": {name: _schema(schema) for name, schema in _object(data.get("definitions")).items()},
            "parameters": {
                name: _parameter(one) for name, one in self._parameters.items() if not _is_in_body(one)
            },
            "responses": {
                name: self._response(one, {}) for name, one in _object(data.get("responses")).items()
            },
            "securitySchemes": {
                name: _security(one) for name, one in _object(data.get("securityDefinitions")).items()
            },
        }
        made: dict[str, Any] = {
            key: data[key] for key in ("info", "tags", "security", "externalDocs") if key in data
        }
        paths = {path: self._item(item) for path, item in _object(data.get("paths")).items()}
        return {
            **made,
            "openapi": "3.0.3",
            "servers": self._servers(),
            "paths": paths,
            "components": components,
        }

    def _servers(self) -> list[dict[str, Any]]:
        host, base = self._data.get("host"), self._data.get("basePath", "")
        if not isinstance(host, str) or not isinstance(base, str):
            return []
        said = self._data.get("schemes")
        schemes = said if isinstance(said, list) and said else ["https"]
        chosen = ["https"] if "https" in schemes else schemes
        return [{"url": f"{scheme}://{host}{base.rstrip('/')}"} for scheme in chosen]

    def _item(self, item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        shared = _listed(item.get("parameters"))
        made = {key: value for key, value in item.items() if key not in (*_METHODS, "parameters")}
        # Parameters of the whole path may be a body, so each operation gets them.
        return made | {
            method: self._operation(operation, shared)
            for method in _METHODS
            if isinstance(operation := item.get(method), dict)
        }

    def _operation(self, operation: dict[str, Any], shared: list[Any]) -> dict[str, Any]:
        dropped = ("parameters", "responses", "consumes", "produces", "schemes")
        made = {key: value for key, value in operation.items() if key not in dropped}
        own = [self._followed(one) for one in _listed(operation.get("parameters"))]
        named = {(_object(one).get("in"), _object(one).get("name")) for one in own}
        inherited = [self._followed(one) for one in shared]
        parameters = own + [
            one for one in inherited if (_object(one).get("in"), _object(one).get("name")) not in named
        ]
        made["parameters"] = [_parameter(one) for one in parameters if not _is_in_body(one)]
        if body := self._body(operation, [one for one in parameters if _is_in_body(one)]):
            made["requestBody"] = body
        made["responses"] = {
            status: self._response(one, operation)
            for status, one in _object(operation.get("responses")).items()
        }
        return made

    def _followed(self, parameter: Any) -> Any:
        reference = _object(parameter).get("$ref")
        if isinstance(reference, str) and reference.startswith("#/parameters/"):
            return self._parameters.get(reference.removeprefix("#/parameters/"), parameter)
        return parameter

    def _body(self, operation: dict[str, Any], parameters: list[dict[str, Any]]) -> dict[str, Any] | None:
        consumed = self._media_types("consumes", operation)
        fields = [one for one in parameters if one.get("in") == "formData"]
        if fields:
            has_file = any(one.get("type") == "file" for one in fields)
            kind = _MULTIPART if has_file or (_MULTIPART in consumed and _FORM not in consumed) else _FORM
            required = [one.get("name") for one in fields if one.get("required") is True]
            schema: dict[str, Any] = {
                "type": "object",
                "properties": {str(one.get("name")): _field(one) for one in fields},
            }
            schema |= {"required": required} if required else {}
            return {"required": bool(required), "content": {kind: {"schema": schema}}}
        for one in parameters:
            schema = _schema(one.get("schema", {}))
            content = {kind: {"schema": schema} for kind in consumed or ["application/json"]}
            words = {"description": one["description"]} if "description" in one else {}
            return {**words, "required": one.get("required") is True, "content": content}
        return None

    def _response(self, response: Any, operation: dict[str, Any]) -> Any:
        if not isinstance(response, dict) or "$ref" in response:
            return _schema(response)
        made = {key: response[key] for key in ("description",) if key in response}
        if "schema" in response:
            kinds = self._media_types("produces", operation) or ["application/json"]
            json = [kind for kind in kinds if "json" in kind.lower()]
            made["content"] = {kind: {"schema": _schema(response["schema"])} for kind in json[:1] or kinds}
        return made

    def _media_types(self, key: str, operation: dict[str, Any]) -> list[str]:
        said = operation.get(key, self._data.get(key))
        return [kind for kind in _listed(said) if isinstance(kind, str)]


def _parameter(parameter: Any) -> Any:
    if not isinstance(parameter, dict) or "$ref" in parameter:
        return _schema(parameter)
    made = {k: v for k, v in parameter.items() if k not in _OF_SCHEMA and k != "collectionFormat"}
    made["schema"] = _schema({k: v for k, v in parameter.items() if k in _OF_SCHEMA})
    if parameter.get("type") == "array":
        stated = parameter.get("collectionFormat", "csv")
        style, explode = _STYLES.get(stated, (f"{stated} (collectionFormat)", False))
        is_simple = style == "form" and parameter.get("in") in ("path", "header")
        made |= {"style": "simple" if is_simple else style, "explode": explode}
    return made


def _field(parameter: dict[str, Any]) -> dict[str, Any]:
    """A field of a form, as a property."""
    schema = {k: v for k, v in parameter.items() if k in _OF_SCHEMA or k == "description"}
    if parameter.get("type") == "file":
        schema |= {"type": "string", "format": "binary"}
    return _schema(schema)  # type: ignore[no-any-return]  # an object stays one


def _is_in_body(parameter: Any) -> bool:
    return _object(parameter).get("in") in ("body", "formData")


def _security(scheme: Any) -> Any:
    said = _object(scheme)
    if said.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    if said.get("type") == "oauth2":
        flow = said.get("flow")
        kept = {k: said[k] for k in ("authorizationUrl", "tokenUrl", "scopes") if k in said}
        return {"type": "oauth2", "flows": {_FLOWS.get(str(flow), str(flow)): kept}}
    return scheme


def _schema(value: Any) -> Any:
    """A schema with references to where 3.0 has its target, and the words of 3.0."""
    if isinstance(value, list):
        return [_schema(one) for one in value]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for key, inside in value.items():
        if key == "$ref" and isinstance(inside, str):
            made[key] = _moved(inside)
        elif key == "x-nullable":
            made["nullable"] = inside
        elif key in ("default", "enum", "example"):
            made[key] = inside
        elif key == "properties" and isinstance(inside, dict):
            made[key] = {name: _schema(one) for name, one in inside.items()}
        else:
            made[key] = _schema(inside)
    if made.get("type") == "file":
        made |= {"type": "string", "format": "binary"}
    return made


def _moved(reference: str) -> str:
    for old, new in _MOVED.items():
        if reference.startswith(old):
            return new + reference.removeprefix(old)
    return reference


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
