"""Fixtures that more than one area uses, and the order in which the suite runs."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.running import Host, Service

# A busy machine is slow now and then, and no test asserts times; pytest's own time-out ends a hang.
settings.register_profile("precedent", deadline=None, print_blob=True)
settings.load_profile("precedent")

# Quick failures first; tests that share the running service stand together.
ORDER = ("service", "validity", "browser", "cluster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run unmarked tests first, then each kind of `ORDER`."""
    items.sort(
        key=lambda item: max(
            (ORDER.index(m.name) for m in item.iter_markers() if m.name in ORDER), default=-1
        )
    )


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Starts services with settings of a test's own; `host.service(args={...})`."""
    host = Host(tmp_path_factory.mktemp("service"))
    yield host
    host.stop()


@pytest.fixture
def service(host: Host) -> Service:
    """The running service with default settings and a store of its own, shared by all tests that ask."""
    return host.service()
