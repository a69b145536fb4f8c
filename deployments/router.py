"""The ingress: HTTP, the decision cache and the policy, in one process."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from ray.serve.handle import DeploymentHandle

from config.paths import CHECKOUT
from config.settings import AppConfig
from core.cache.cache import DecisionCache, Limits
from core.cache.fences import Scope
from core.cache.guard import Guarding
from core.cache.modes import Mode, view
from core.cache.stores import REPLY_S, open_store
from core.contract.request import Contract
from core.engines.registry import EngineIdentity
from core.errors import StoreUnavailable
from core.routing import Admission, Decider, Tables, no_vectors
from core.tasks.registry import Registry
from core.tasks.stores import open_task_store
from deployments.auth import Callers, Keys, Open
from deployments.bodies import BodyLimits
from deployments.cache_routes import cache_routes
from deployments.check import refuse_open_doors
from deployments.coalescer import connect
from deployments.fast_table import RemoteEncoder
from deployments.fitting import means_of
from deployments.http import AsgiApp, HttpApp
from deployments.ingress import ingress_warnings, listening_host
from deployments.pages import ServedModel, build_pages
from deployments.records import Records
from deployments.remote_engine import RemoteEngine
from deployments.row_buffer import RowBuffer
from deployments.row_maker import RowMaker
from deployments.spot_checks import SpotChecks
from deployments.tables_on_node import TablesOnNode
from deployments.task_routes import TaskLimits, task_routes
from deployments.task_sync import Host, TaskSync
from deployments.teaching import Teaching
from deployments.tending import Tending, suspend
from deployments.timing import HostTimings
from deployments.watcher import Watcher

log = logging.getLogger("ray.serve.precedent")  # its parent writes the replica's log file

PROBE_TIMEOUT_S = 1.0
KEYS_RELOAD_S = 1.0
TABLES_DIR = ".precedent/tables"  # in the checkout, on every node


class Router:
    """Receive HTTP and settle requests.

    Args:
        config: the app's settings.
        engine: the engine that every Model replica must have loaded.
        model: reaches the Model replicas.
        encoder: digest of the encoder that every FastTable replica must have loaded; None without any.
        fast_table: reaches the FastTable replicas; None without any.

    Raises:
        SettingsError: other machines can reach the ingress, and there are no API keys; or a wrong keys file.
    """

    def __init__(
        self,
        config: AppConfig,
        engine: EngineIdentity,
        model: "DeploymentHandle[Any]",
        encoder: str | None = None,
        fast_table: "DeploymentHandle[Any] | None" = None,
    ) -> None:
        refuse_open_doors(listening_host(), config)
        for warning in ingress_warnings(os.environ):
            log.warning(warning)
        self._config = config
        self._engine = engine
        self._keys = None if config.keys_file is None else Keys(Path(config.keys_file))
        self._remote = RemoteEngine(engine, model.answer.remote)
        self._cache = DecisionCache(
            open_store(
                config.store,
                max_entries=config.cache.max_entries,
                reply_s=max(REPLY_S, config.cache.store_deadline_s),
            ),
            config.cache.retention(),
            Limits(memory_entries=config.cache.l1_entries),
            Guarding(deadline_s=config.cache.store_deadline_s),
        )
        self._registry = Registry()
        self._task_store = open_task_store(config.tasks.store or config.store)
        tables = TablesOnNode(CHECKOUT / TABLES_DIR, self._task_store)
        vectors = (
            None
            if fast_table is None
            else RemoteEncoder(fast_table.encode.remote, config.fast_table.deadline_s)
        )
        means = means_of(config, self._remote, vectors)
        self._timings = HostTimings(means.stopwatch, CHECKOUT / TABLES_DIR)
        self._sync = TaskSync(
            self._task_store,
            self._registry,
            tables,
            Host(encoder, engine.fingerprint),
            self._timings,
            self._revoke,
        )
        records = Records(self._task_store, self._sync)
        self._teaching = Teaching(records, means)
        self._watcher = Watcher(
            self._task_store,
            self._registry,
            RowMaker(CHECKOUT / config.engine.models_dir, means.stopwatch.encode, engine.fingerprint),
            RowBuffer(self._task_store, config.tasks.max_pending_rows, config.tasks.max_rows),
            SpotChecks(self._remote, config.deadline_s),
            self._timings,
            suspend=partial(suspend, records),
        )
        self._tending = Tending(records, self._watcher.flush, config.tasks.max_rows)
        self._coalescer = connect(config.coalescer.bounds(), config.coalescer.shards)
        self._decider = Decider(
            contract=Contract(
                models=config.model_names(engine.name),
                max_questions=config.limits.max_questions,
                max_state_chars=config.limits.max_state_chars,
            ),
            engine=self._remote,
            cache=view(self._cache, Mode(config.cache.mode)),
            clock=time.time,
            turns=self._coalescer,
            admission=Admission(
                config.deadline_s, config.admission.max_computing, config.admission.max_waiting_per_key
            ),
            tenant_caches={
                tenant: view(self._cache, Mode(mode)) for tenant, mode in config.cache.tenant_modes.items()
            },
            tables=Tables(
                self._registry,
                no_vectors if vectors is None else vectors.encode,
                answer_first=config.tasks.settle == "async",
                watch=self._watcher.see,
            ),
        )

    def __serve_build_asgi_app__(self) -> AsgiApp:
        """The application that Serve puts behind the ingress."""
        callers: Callers = self._keys or Open()
        served = tuple(
            ServedModel(name, f"answered by {self._engine.name}", self._engine.release_date)
            for name in self._config.model_names(self._engine.name)
        )
        pages = build_pages(version("precedent"), served, callers, self._readiness, self._lifespan)
        pages.include_router(cache_routes(self._cache, callers, self._coalesced, self._under_way))
        pages.include_router(self._task_routes(callers))
        return HttpApp(
            decider=self._decider,
            pages=pages,
            callers=callers,
            deployment=self._config.deployment,
            limits=BodyLimits(self._config.limits.max_body_bytes, self._config.limits.receive_s),
            clock=time.time,
        )

    def _task_routes(self, callers: Callers) -> APIRouter:
        wanted, limits = self._config.tasks, self._config.limits
        about = {"engine": self._engine.name, "fingerprint": self._engine.fingerprint}
        return task_routes(
            self._registry,
            self._teaching,
            self._tending,
            self._timings,
            callers,
            TaskLimits(
                BodyLimits(wanted.max_body_bytes, limits.receive_s),
                wanted.max_examples,
                limits.max_state_chars,
                wanted.max_rows,
                wanted.register_wait_s,
                wanted.read_only,
            ),
            about,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        # Opening a file may take longer than a request should wait for the store.
        await self._cache.count(time.time())
        with contextlib.suppress(StoreUnavailable):  # they are read as soon as it answers
            await self._sync.refresh()
        chores = [
            asyncio.create_task(self._cache.keep_up(time.time)),
            asyncio.create_task(self._sync.keep_up(self._config.tasks.poll_s)),
            asyncio.create_task(self._watcher.keep_up(self._config.tasks.flush_s)),
            asyncio.create_task(self._reload_keys()),
        ]
        yield
        await self._decider.drain()
        await self._teaching.drain()
        await self._timings.drain()
        await self._coalescer.close()
        for chore in chores:
            chore.cancel()
        await asyncio.wait(chores)
        await self._watcher.drain()
        await self._cache.maintain(time.time())
        await self._cache.close()
        await self._task_store.close()

    async def _revoke(self, tenant: str, table_version: str) -> None:
        await self._cache.purge(Scope(tenant=tenant, table_version=table_version), time.time())

    async def _reload_keys(self) -> None:
        while self._keys is not None:
            await asyncio.sleep(KEYS_RELOAD_S)
            problem = self._keys.reload()
            if problem is not None:
                log.error(problem)

    async def _readiness(self) -> dict[str, Any]:
        model_up = await self._model_answers()
        return {
            "ready": model_up,
            "model": "up" if model_up else "no replica answers; stored decisions are replayed all the same",
            "engine": self._engine.name,
            "fingerprint": self._engine.fingerprint,
        }

    async def _model_answers(self) -> bool:
        with contextlib.suppress(Exception):  # whatever it is, the model does not answer
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await self._remote.answer([]) == []
        return False

    def _coalesced(self, tenant: str | None) -> int:
        by_tenant = self._decider.coalesced
        return by_tenant.total() if tenant is None else by_tenant[tenant]

    def _under_way(self) -> dict[str, Any]:
        """What stands between this Router and rest: every number but the counters returns to 0."""
        decider, turns = self._decider, self._coalescer
        return {
            "in_flight": decider.in_flight,
            "computing": decider.computing,
            "coalescer": {"reachable": turns.reachable, **asdict(turns.stats())},
        }
