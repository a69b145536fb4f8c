"""The app: every deployment, replica, actor and option, named here and nowhere else.

`serve_config.yaml` names `deployments.app:build`. Serve validates `args:` by the annotation of `build`, which
it can only do where that is the class itself: no postponed annotations in this file.
"""

from ray import serve
from ray.serve.deployment import Application, Deployment

from config.paths import absolute_store
from config.settings import AppConfig
from core.engines.registry import describe
from deployments.check import refuse_misspelt
from deployments.coalescer import coalescer_actors
from deployments.fast_table import FastTable, encoder_here
from deployments.model import Model
from deployments.router import Router

START_ATTEMPTS = 3  # what keeps a replica from starting is rarely gone by the twentieth time, Serve's default
MAX_BACKOFF_S = 0.05  # between looks at full Models; Serve's half second leaves them idle most of the time
DRAIN_POLL_S = 0.5
IDLE_S = 600.0  # a FastTable replica that nobody asks for so long goes
SHUTDOWN_MARGIN_S = 5.0  # beyond the longest computation, for what is written afterwards


def build(config: AppConfig) -> Application:
    """Compose the app.

    The engine is described once, here: each replica learns which engine the app was built for, and a Model
    replica that loads another one does not become healthy.
    """
    if config.settings_file is not None:
        refuse_misspelt(config)
    config = config.model_copy(update={"store": absolute_store(config.store)})
    spec = config.engine.spec()
    engine = describe(spec)
    model = _model(config).bind(spec, engine.fingerprint)
    encoder = encoder_here(spec.model_dir)
    if encoder is None:  # no model was prepared, so no table can read its vectors
        return _router(config).bind(config, engine, model, None, None)
    fast_table = _fast_table(config).bind(spec.model_dir, encoder, config.fast_table.threads)
    return _router(config).bind(config, engine, model, encoder, fast_table)


def _router(config: AppConfig) -> Deployment:
    # The class builds its ASGI application itself: one given to `ingress` would be copied by pickle.
    ingress = serve.ingress()(Router)
    return serve.deployment(
        name="Router",
        num_replicas=config.router.replicas,
        max_ongoing_requests=config.router.max_ongoing_requests,
        ray_actor_options={"num_cpus": config.router.num_cpus},
        deployment_actors=[*coalescer_actors(config.coalescer.bounds(), config.coalescer.shards)],
        max_constructor_retry_count=START_ATTEMPTS,
        graceful_shutdown_wait_loop_s=DRAIN_POLL_S,
        graceful_shutdown_timeout_s=config.deadline_s + SHUTDOWN_MARGIN_S,
    )(ingress)


def _model(config: AppConfig) -> Deployment:
    return serve.deployment(
        name="Model",
        num_replicas=config.model.replicas,
        max_ongoing_requests=config.model.max_ongoing_requests,
        request_router_config={"max_backoff_s": MAX_BACKOFF_S},
        ray_actor_options={"num_cpus": config.model.num_cpus, "num_gpus": config.model.num_gpus},
        max_constructor_retry_count=START_ATTEMPTS,
        graceful_shutdown_wait_loop_s=DRAIN_POLL_S,
        graceful_shutdown_timeout_s=config.deadline_s + SHUTDOWN_MARGIN_S,
    )(Model)


def _fast_table(config: AppConfig) -> Deployment:
    wanted = config.fast_table
    return serve.deployment(
        name="FastTable",
        autoscaling_config={
            "min_replicas": wanted.min_replicas,
            "initial_replicas": wanted.min_replicas,
            "max_replicas": wanted.max_replicas,
            "target_ongoing_requests": max(1, wanted.max_ongoing_requests // 8),
            "downscale_delay_s": IDLE_S,
        },
        max_ongoing_requests=wanted.max_ongoing_requests,
        request_router_config={"max_backoff_s": MAX_BACKOFF_S},
        ray_actor_options={"num_cpus": wanted.num_cpus},
        max_constructor_retry_count=START_ATTEMPTS,
        graceful_shutdown_wait_loop_s=DRAIN_POLL_S,
        graceful_shutdown_timeout_s=config.deadline_s + SHUTDOWN_MARGIN_S,
    )(FastTable)
