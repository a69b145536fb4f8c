"""How much of a task's `delta` each of its certifications may spend, so that together they spend no more."""


def share(delta: float, look: int, students: int) -> float:
    """The failure probability of one student's certificate.

    The k-th look at a task spends delta / (k (k + 1)); these sum to delta over all looks there can be.
    Students that are tried in one look share what it spends.

    Args:
        delta: of the task, in (0, 1).
        look: 1 for the task's first certification.
        students: how many are certified in this look.
    """
    return delta / (look * (look + 1)) / students
