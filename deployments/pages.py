"""The slow routes: models, health, readiness, the OpenAPI document and its page."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import swagger_ui_bundle
from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from core.errors import PrecedentError
from deployments import schema
from deployments.auth import Callers
from deployments.http_errors import error_for_status, error_response, plain_error

ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": schema.Error, "description": "No API key, or one that is not known here"},
    403: {"model": schema.Error, "description": "An API key without the scope `decide`"},
    400: {"model": schema.Error, "description": "A valid body that asks for what is not served here"},
    409: {"model": schema.Error, "description": "The evidence was no longer valid; no engine was asked"},
    408: {"model": schema.Error, "description": "The body took too long to arrive"},
    429: {"model": schema.Error, "description": "Too much waits; retry after the stated seconds"},
    413: {"model": schema.Error, "description": "Too many bytes, or too much text"},
    415: {"model": schema.Error, "description": "Not JSON, or an encoding that cannot be undone"},
    422: {"model": schema.ValidationErrors, "description": "The body breaks the contract"},
    504: {"model": schema.Error, "description": "Only a stored decision was wanted, and there is none"},
    503: {"model": schema.Error, "description": "No answer could be had; retry after the stated seconds"},
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A name that requests may use, as `GET /v1/models` lists it."""

    name: str
    description: str
    release_date: str  # YYYY-MM-DD


def build_pages(
    version: str,
    models: tuple[ServedModel, ...],
    callers: Callers,
    readiness: Callable[[], Awaitable[dict[str, Any]]],
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
) -> FastAPI:
    """The application behind every path but the hot one.

    Args:
        version: of the service, for the document.
        models: the names that requests may use.
        callers: whose request it is.
        readiness: says what is up; its member `ready` decides the status of `GET /ready`.
        lifespan: entered at start-up, left at shut-down.
    """
    app = FastAPI(
        title="Precedent",
        version=version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # clients of this contract take a redirect for a broken server
        lifespan=lifespan,
    )
    _refuse_in_our_shape(app)
    _add_documentation(app)
    listed = schema.Models(models=[schema.Model(**vars_of(model)) for model in models]).model_dump()

    @app.get(
        "/v1/models",
        response_model=schema.Models,
        responses={401: ERRORS[401]},
        summary="The models served here",
    )
    async def list_models(request: Request) -> JSONResponse:
        callers.caller(request.scope["headers"])
        return JSONResponse(listed)

    @app.get("/health", summary="Whether this process answers")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/ready",
        responses={503: {"description": "No new decision can be made now; stored ones are replayed"}},
        summary="Whether a new decision can be made now",
    )
    async def ready() -> JSONResponse:
        facts = await readiness()
        return JSONResponse(facts, status_code=200 if facts["ready"] else 503)

    return app


def vars_of(model: ServedModel) -> dict[str, str]:
    """The fields of a served model, by name."""
    return {"name": model.name, "description": model.description, "release_date": model.release_date}


def _add_documentation(app: FastAPI) -> None:
    @app.post(
        "/v1/systemone",
        response_model=schema.DecisionResponse,
        responses=ERRORS,
        summary="Decide: a state and typed questions in, a probability per option out",
        openapi_extra={"parameters": schema.TERMS},
    )
    async def systemone(request: schema.DecisionRequest) -> None:
        raise AssertionError("the hot route answers this path before it gets here. This is a bug.")

    @app.post(
        "/v1/systemone/batch",
        response_model=schema.BatchResponse,
        responses=ERRORS,
        summary="Decide up to 64 requests; each has a result of its own",
        openapi_extra={"parameters": schema.TERMS},
    )
    async def batch(request: schema.StatesBatch | schema.RequestsBatch) -> None:
        raise AssertionError("the hot route answers this path before it gets here. This is a bug.")

    # The page's assets come from a package, so that it works where no content network is reachable.
    app.mount("/docs/assets", StaticFiles(directory=swagger_ui_bundle.swagger_ui_path), name="docs-assets")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title="Precedent: the HTTP interface",
            swagger_js_url="docs/assets/swagger-ui-bundle.js",
            swagger_css_url="docs/assets/swagger-ui.css",
            swagger_favicon_url="docs/assets/favicon-32x32.png",
        )


def _refuse_in_our_shape(app: FastAPI) -> None:
    async def refused(_request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        status, body = error_for_status(error.status_code)
        return Response(body, status, error.headers, "application/json")

    async def ours(_request: Request, error: Exception) -> Response:
        if not isinstance(error, PrecedentError):
            raise error
        status, body, headers = error_response(error)
        named = {name.decode(): value.decode() for name, value in headers}
        return Response(body, status, named, "application/json")

    async def failed(_request: Request, _error: Exception) -> Response:
        status, body = plain_error(500, "internal_error", "the server failed; its log says how")
        return Response(body, status, media_type="application/json")

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(PrecedentError, ours)
    app.add_exception_handler(Exception, failed)
