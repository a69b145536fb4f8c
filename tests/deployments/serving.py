"""The HTTP application of a Router in this process, over an engine for tests and a store in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, FastAPI

from core.cache.cache import DecisionCache
from core.cache.retention import Retention
from core.cache.stores.base import Store
from core.cache.stores.memory import MemoryStore
from core.contract.request import Contract
from core.engines.fake import FakeEngine
from core.routing import Admission, Decider, Tables
from deployments.auth import Callers, Open
from deployments.bodies import BodyLimits
from deployments.cache_routes import cache_routes
from deployments.http import HttpApp
from deployments.pages import ServedModel, build_pages

MODELS = ("fake", "jev-latest")
MAX_BYTES = 100_000


@dataclass
class Serving:
    """What `app` is made of; a test sets what it wants to be otherwise."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    store: Store = field(default_factory=lambda: MemoryStore(max_entries=1_000))
    retention: Retention = field(default_factory=Retention)
    callers: Callers = field(default_factory=Open)
    receive_s: float = 60.0
    deadline_s: float = 60.0
    ready: dict[str, Any] = field(default_factory=lambda: {"ready": True})
    clock: Callable[[], float] = lambda: 1_000.0
    tables: Tables | None = None
    more_routes: APIRouter | None = None

    def app(self) -> HttpApp:
        """A fresh Router over the same engine and store."""
        cache = self.cache = DecisionCache(self.store, self.retention)
        decider = Decider(
            contract=Contract(MODELS, max_state_chars=20_000),
            engine=self.engine,
            cache=cache,
            clock=self.clock,
            admission=Admission(deadline_s=self.deadline_s),
            tables=self.tables,
        )
        served = tuple(ServedModel(name, "for tests", "2025-01-31") for name in MODELS)
        pages = build_pages("0", served, self.callers, self._readiness, _lifespan)
        pages.include_router(
            cache_routes(
                cache, self.callers, lambda _tenant: 0, lambda: {"in_flight": decider.in_flight}, self.clock
            )
        )
        if self.more_routes is not None:
            pages.include_router(self.more_routes)
        return HttpApp(
            decider=decider,
            pages=pages,
            callers=self.callers,
            deployment="test",
            limits=BodyLimits(MAX_BYTES, self.receive_s),
            clock=self.clock,
        )

    async def _readiness(self) -> dict[str, Any]:
        return self.ready


@asynccontextmanager
async def _lifespan(_app: FastAPI) -> AsyncIterator[None]:
    yield
