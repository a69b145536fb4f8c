"""How requests reach a Router: Serve's HAProxy ingress, and what Ray must be told before it starts.

Ray reads these variables when its processes start, on every node: an app cannot set them for itself.
docs/decisions/0003-ingress-settings.md says why each is there and what it is worth.
"""

from collections.abc import Mapping
from typing import Final

REQUIRED: Final[Mapping[str, str]] = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",  # the default proxy costs ten times more
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",  # no second thread, no second event loop, calls by gRPC
}
"""Without these a request costs several times as much."""

RECOMMENDED: Final[Mapping[str, str]] = {
    "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",  # a log line and a datagram for each request
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",  # deciding twice does no harm: first wins
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",  # one thread carries more than a node's Routers; four only spin
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "10",  # longer ones flush in bursts that stall the loop
    "RAY_worker_niceness": "0",  # Ray's 15 lets everything else on the machine go first
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing about a deployment leaves it
}

INGRESS_ENV: Final[Mapping[str, str]] = {**REQUIRED, **RECOMMENDED}


def listening_host() -> str:
    """The address that Serve's ingress binds, as this replica's cluster was started.

    `serve run` and `serve deploy` hand an app its own settings only, so it has to ask.
    """
    import ray  # noqa: PLC0415  the launcher must be able to import this module before Ray
    from ray.serve.context import _get_global_client  # noqa: PLC0415  Ray has no public way

    if not ray.is_initialized():
        return "127.0.0.1"  # the whole app runs in one process, which listens nowhere
    client = _get_global_client()
    if client is None:
        raise AssertionError("a replica runs without a controller. This is a bug.")
    return str(client.http_config.host)


def ingress_warnings(environ: Mapping[str, str]) -> list[str]:
    """One sentence when requests take the slow way, that says what to set; none when all is well."""
    missing = [f"{name}={value}" for name, value in REQUIRED.items() if environ.get(name) != value]
    if not missing:
        return []
    return [
        f"requests take the slow way to this Router: set {' '.join(missing)} before Ray starts, on every "
        "node (`make serve` does); each request costs ten times as much CPU until then"
    ]
