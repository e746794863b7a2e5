"""OpenAPI documents that tests start from; all of them ours."""

from typing import Any

from toolkeep import Keep
from toolkeep.sources.openapi.document import Document, read_document
from toolkeep.sources.openapi.operation_import import Import, ImportOptions, import_document

URL = "http://shop.example/v1"


def described(paths: dict[str, Any], *, version: Any = "3.1.0", **more: Any) -> Document:
    """A document with these paths."""
    import json

    data = {"openapi": version, "info": {"title": "Shop", "version": "1.2.0"}, "paths": paths, **more}
    return read_document(json.dumps(data).encode(), "shop.json")


def operation(name: str = "ask", **fields: Any) -> dict[str, Any]:
    return {"operationId": name, "summary": "Asks.", "responses": {}, **fields}


def imported(document: Document, *, taken: tuple[str, ...] = (), **wishes: Any) -> list[Import]:
    return import_document(document, ImportOptions(**{"name": "shop", "url": URL, **wishes}), taken)


def one(document: Document, **wishes: Any) -> Import:
    (made,) = imported(document, **wishes)
    return made


def keep_of(document: Document, **wishes: Any) -> Keep:
    """A keep with everything that a document offers, and an agent that may call all of it."""
    keep = Keep()
    keep.register(*(made.offer for made in imported(document, **wishes) if made.offer))
    hosts = ("shop.example:*", "other.example:*", "10.0.0.0/8:*")
    held = [f"{kind}:{host}" for kind in ("net.read", "net.write") for host in hosts]
    keep.declare_agent("ada", capabilities=held)
    return keep
