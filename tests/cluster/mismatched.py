"""An app whose Model replicas find other files than the app was built for."""

from typing import Any

from ray import serve
from ray.serve.deployment import Application

from core.engines.registry import EngineSpec
from deployments.model import Model


def build(_args: dict[str, Any]) -> Application:
    """One Model that is told to be `fake-0` and loads `fake-1`."""
    deployment = serve.deployment(name="Model", max_constructor_retry_count=2)(Model)
    return deployment.bind(EngineSpec(kind="fake", seed=1), "fake-0")
