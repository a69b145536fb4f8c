"""A small Ray for measurements against one actor, and an actor that does nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import ray

from config.paths import CHECKOUT
from tests.running import one_cluster


class Idle:
    """An actor that does nothing."""

    async def call(self, word: bytes) -> bytes:
        """Return what came."""
        return word


@contextmanager
def one_ray() -> Iterator[None]:
    """A Ray of two CPUs that lives as long as the block, the only one on this machine."""
    with one_cluster():
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 * 1024 * 1024,
            runtime_env={"env_vars": {"PYTHONPATH": str(CHECKOUT)}},
        )
        try:
            yield
        finally:
            ray.shutdown()
