import os
import subprocess
import sys

import pytest

from deployments.processes import descendants, named, wait_until_steady

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who descends from whom")

# A parent whose child outlives it, ignores SIGTERM, and says so on standard output.
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]).stdout"
ADOPTER = f"""
import os, subprocess, sys
from deployments.processes import adopt_orphans, descendants, end_descendants
adopt_orphans()
read, write = os.pipe()
subprocess.run([sys.executable, "-c", {PARENT!r}], stdout=write, check=True)
os.read(read, 1)
before = len(descendants(os.getpid()))
killed = end_descendants(grace_s=0.2)
print(before, killed, len(descendants(os.getpid())))
"""


def test_descendants_are_found_over_generations():
    grandparent = (
        "import subprocess, sys; "
        "subprocess.run([sys.executable, '-c', 'print(flush=True); input()'], stdout=1, stdin=0)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", grandparent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()

        below = descendants(os.getpid())

        assert child.pid in below
        assert len(descendants(child.pid)) == 1
        child.communicate(b"\n")


def test_a_descendant_is_found_by_the_name_of_its_program():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert named("cat", os.getpid()) == [child.pid]
        assert named("ca", os.getpid()) == []
        child.communicate()


@pytest.mark.parametrize(
    ("changes_at_s", "ends_at_s"),
    [([], 1.0), ([0.2], 1.2), ([0.2, 0.9, 1.5], 2.5), ([0.5 * turn for turn in range(1, 9)], 3.0)],
    ids=["nothing changes", "one change", "changes in a row", "changes without end"],
)
def test_a_wait_for_steadiness_begins_anew_with_every_change_and_ends_in_time(changes_at_s, ends_at_s):
    passed_s = 0.0

    def sleep(for_s):
        nonlocal passed_s
        passed_s += for_s

    wait_until_steady(
        lambda: sum(at <= passed_s + 1e-6 for at in changes_at_s), 1.0, 3.0, sleep, lambda: passed_s
    )

    assert passed_s == pytest.approx(ends_at_s, abs=0.051)


def test_an_orphan_that_ignores_the_request_to_end_is_ended_all_the_same():
    done = subprocess.run([sys.executable, "-c", ADOPTER], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["1", "1", "0"]
