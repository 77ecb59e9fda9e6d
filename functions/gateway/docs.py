"""`/docs`: the page without a content delivery network, and the plain routes that the framework does not describe."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

DOCS_PATH = "/docs"

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_ANY_OBJECT = {"schema": {"type": "object", "additionalProperties": True}}


def serve_docs(app: FastAPI) -> None:
    """Serve `/docs` with its scripts from this machine, so that it works where the internet is out of reach."""
    assets = Path(fastapi_offline.__file__).parent / "static"
    app.mount(f"{DOCS_PATH}/assets", StaticFiles(directory=assets))

    @app.get(DOCS_PATH, include_in_schema=False)
    async def read_docs() -> Response:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Omnibus",
            swagger_js_url=f"{DOCS_PATH}/assets/swagger-ui-bundle.js",
            swagger_css_url=f"{DOCS_PATH}/assets/swagger-ui.css",
            swagger_favicon_url=f"{DOCS_PATH}/assets/favicon.png",
        )


def describe_routes(app: FastAPI, routes: Iterable[Route]) -> None:
    """Add the routes to the app's OpenAPI description, with their docstrings."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = described()
            for route in routes:
                operations = schema["paths"].setdefault(route.path, {})
                for method in sorted((route.methods or set()) - {"HEAD"}):
                    operations[method.lower()] = _operation(route, method)
            app.openapi_schema = schema
        return app.openapi_schema

    # How FastAPI's documentation says to extend it.
    app.openapi = openapi  # type: ignore[method-assign]


def _operation(route: Route, method: str) -> dict[str, Any]:
    text = inspect.getdoc(route.endpoint) or ""
    operation: dict[str, Any] = {
        "tags": ["pipelines"],
        "summary": text.partition(":")[2].partition("\n")[0].strip(" ."),
        "description": text.partition("\n\n")[2].partition("\n\nRaises:")[0],
        "operationId": route.name,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in route.param_convertors
        ],
        "responses": {"200": {"description": "The answer", "content": {"application/json": _ANY_OBJECT}}},
    }
    if method == "POST":
        operation["requestBody"] = {
            "content": {"application/json": _ANY_OBJECT, "application/msgpack": _BINARY, "*/*": _BINARY}
        }
    return operation
