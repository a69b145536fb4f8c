import subprocess
import sys

from core.coalescing.bounds import Bounds
from deployments.coalescer import coalescer_actors

BOUNDS = Bounds()


def test_each_shard_has_an_actor_of_its_own():
    names = [actor.name for actor in coalescer_actors(BOUNDS, shards=3)]

    assert names == ["coalescer-0", "coalescer-1", "coalescer-2"]


def test_the_controller_can_unpickle_the_actor_where_our_packages_are_unknown(tmp_path):
    (actor,) = coalescer_actors(BOUNDS, shards=1)
    pickled = tmp_path / "actor"
    pickled.write_bytes(actor._serialized_actor_class)
    program = (
        "import pathlib, sys, ray.cloudpickle as pickle\n"
        f"pickle.loads(pathlib.Path({str(pickled)!r}).read_bytes())\n"
        "sys.exit(any(name.split('.')[0] in ('core', 'deployments') for name in sys.modules))\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_what_the_controller_is_given_beside_the_class_are_plain_values():
    (actor,) = coalescer_actors(BOUNDS, shards=1)

    assert set(map(type, actor.init_kwargs["bounds"].values())) <= {int, float}
