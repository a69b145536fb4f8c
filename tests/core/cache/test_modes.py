"""A cache that is used, watched, or left out."""

import orjson
import pytest

from core.cache.cache import DecisionCache
from core.cache.comparison import difference
from core.cache.fences import EVERYTHING
from core.cache.modes import Mode, view
from core.cache.stats import ShadowTally
from core.cache.stores.memory import MemoryStore
from tests.core.cache.faulty import ACME, NOW, OTHER, key, noul


@pytest.fixture
async def cache():
    one = DecisionCache(MemoryStore())
    await one.maintain(NOW)
    return one


async def test_a_cache_that_is_on_is_the_cache_itself(cache):
    assert view(cache, Mode.ON) is cache


async def test_a_cache_that_is_off_replays_and_stores_nothing(cache):
    off = view(cache, Mode.OFF)
    await cache.add(noul(1), ACME, NOW)
    added = await off.add(noul(2), ACME, NOW)

    assert (added.decision.answers, added.won, added.stored) == (noul(2).answers, True, False)
    assert off.peek(key(1), NOW) is None
    assert await off.get(key(1), ACME, NOW) is None
    assert await cache.count(NOW) == 1
    assert off.epoch == cache.epoch


async def test_a_cache_in_shadow_stores_and_never_replays(cache):
    shadow = view(cache, Mode.SHADOW)
    added = await shadow.add(noul(1), ACME, NOW)

    assert (added.won, added.stored) == (True, True)
    assert shadow.peek(key(1), NOW) is None
    assert await shadow.get(key(1), ACME, NOW) is None
    assert cache.peek(key(1), NOW) is not None


async def test_in_shadow_the_fresh_answer_is_given_and_what_would_have_been_replayed_is_compared(cache):
    shadow = view(cache, Mode.SHADOW)
    for second, probability in enumerate((0.9, 0.9, 0.7, 0.4)):
        added = await shadow.add(noul(1, probability), ACME, NOW + second)
        assert added.decision.answers == noul(1, probability).answers
        assert added.won

    assert cache.stats("acme").tally.shadow == ShadowTally(3, 1, 1, 0.5)
    assert cache.stats().tally.conflicts == 0


async def test_comparisons_of_all_tenants_are_summed_up(cache):
    shadow = view(cache, Mode.SHADOW)
    for number, identity, probability in ((1, ACME, 0.6), (2, OTHER, 0.1)):
        await shadow.add(noul(number, 0.9), identity, NOW)
        await shadow.add(noul(number, probability), identity, NOW)

    assert cache.stats().tally.shadow == ShadowTally(2, 0, 1, 0.8)


async def test_nothing_is_compared_with_what_was_purged(cache):
    shadow = view(cache, Mode.SHADOW)
    await shadow.add(noul(1, 0.9, epoch=cache.epoch), ACME, NOW)
    await cache.purge(EVERYTHING, NOW)
    await shadow.add(noul(1, 0.2, epoch=cache.epoch), ACME, NOW)

    assert cache.stats().tally.shadow.compared == 0


def choice(**probabilities):
    first = max(probabilities, key=probabilities.__getitem__)
    return orjson.dumps(
        {"q": {"type": "choice", "choice": first, "probabilities": probabilities, "confidence": 0.1}}
    )


def score(*probabilities):
    levels = {str(level): p for level, p in enumerate(probabilities)}
    mean = sum(level * p for level, p in enumerate(probabilities))
    return orjson.dumps({"q": {"type": "score", "score": mean, "legend": {}, "probabilities": levels}})


def yes(probability):
    return orjson.dumps({"q": {"type": "noul", "noul": probability}})


@pytest.mark.parametrize(
    ("one", "other", "flipped", "largest"),
    [
        (yes(0.5), yes(0.499999), True, 0.000001),
        (yes(0.9), yes(0.51), False, 0.39),
        (choice(a=0.6, b=0.4), choice(a=0.55, b=0.45), False, 0.05),
        (choice(a=0.6, b=0.4), choice(a=0.4, b=0.6), True, 0.2),
        (score(0.2, 0.5, 0.3), score(0.3, 0.4, 0.3), False, 0.1),
        (score(0.2, 0.5, 0.3), score(0.2, 0.3, 0.5), True, 0.2),
    ],
)
def test_answers_differ_by_their_largest_probability_and_flip_with_their_decision(
    one, other, flipped, largest
):
    apart = difference(one, other)

    assert (apart.equal, apart.flipped) == (False, flipped)
    assert apart.largest == pytest.approx(largest)
    assert difference(one, one).equal
