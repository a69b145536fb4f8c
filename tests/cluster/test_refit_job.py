"""`jobs.refit` as Ray runs it: in a copy of the checkout, submitted to a cluster."""

import asyncio
import sys
import time

import pytest
import ray
from ray.job_submission import JobStatus, JobSubmissionClient

from config.paths import CHECKOUT
from core.tasks.record_json import encode
from core.tasks.stores import open_task_store
from tests.jobs.test_refit import learner
from tests.running import free_port, one_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture
def jobs(host, monkeypatch):
    """Submits jobs to a Ray of this machine."""
    host.stop()
    with one_cluster():
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        port = free_port()
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=True,
            dashboard_port=port,
            log_to_driver=False,
            object_store_memory=100 * 1024 * 1024,
        )
        try:
            yield JobSubmissionClient(f"http://127.0.0.1:{port}")
        finally:
            ray.shutdown()


def test_a_submitted_job_finds_the_store_and_the_models_of_its_home(jobs, tmp_path):
    url = f"sqlite:///{tmp_path}/decisions.db"

    async def keep():
        store = open_task_store(url)
        await store.put("acme", "support", encode(learner()), 0, 1.0)
        await store.close()

    asyncio.run(keep())
    job = jobs.submit_job(
        entrypoint=f"{sys.executable} -m jobs.refit --all --store {url} --home {CHECKOUT}",
        runtime_env={"working_dir": str(CHECKOUT), "excludes": [".git", ".venv", ".precedent"]},
    )
    end = time.monotonic() + 120.0
    while not jobs.get_job_status(job).is_terminal() and time.monotonic() < end:
        time.sleep(0.2)

    assert jobs.get_job_status(job) == JobStatus.SUCCEEDED, jobs.get_job_logs(job)
    assert "support: 0 new rows, and 100 are needed" in jobs.get_job_logs(job)
