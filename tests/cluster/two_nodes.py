"""The service on a Ray of two nodes on this machine: `python -m tests.cluster.two_nodes SETTINGS`."""

import logging
import sys
from typing import Any

from deployments.serve import main

CPUS = 2  # of each node; the fleet does not fit on one
OBJECT_STORE_BYTES = 100 * 1024 * 1024


def start_two_nodes() -> None:
    """Start a head and one more node, and connect to them."""
    import ray  # noqa: PLC0415  Ray reads its environment when it is imported
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    node: dict[str, Any] = {"num_cpus": CPUS, "object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    ray.init(
        address=cluster.address,
        namespace="serve",
        logging_level=logging.WARNING,
        log_to_driver=False,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], start_two_nodes))
