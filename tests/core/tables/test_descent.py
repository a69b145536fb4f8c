import numpy as np

from core.tables.descent import minimise


def test_it_finds_the_lowest_point_of_a_stretched_bowl():
    stretch = np.logspace(0, 3, 20).astype(np.float32)
    lowest = np.arange(20, dtype=np.float32)

    def bowl(point):
        off = point - lowest
        return 0.5 * float((stretch * off * off).sum(dtype=np.float64)), stretch * off

    found = minimise(bowl, np.zeros(20, np.float32), iterations=200, tolerance=1e-9)

    np.testing.assert_allclose(found, lowest, atol=0.05)


def test_it_stays_where_nothing_is_lower():
    start = np.zeros(3, np.float32)

    found = minimise(lambda point: (float(point @ point), 2 * point), start, iterations=10, tolerance=1e-6)

    assert found.tolist() == start.tolist()


def test_it_never_returns_a_point_above_the_start():
    def wave(point):
        return float(np.sin(point).sum()), np.cos(point)

    start = np.full(4, 0.3, np.float32)

    found = minimise(wave, start, iterations=50, tolerance=1e-9)

    assert wave(found)[0] <= wave(start)[0]
