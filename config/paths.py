"""Where this checkout is, and what a relative path in the settings is relative to."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

_SQLITE = "sqlite:///"


def absolute_store(url: str, home: Path = CHECKOUT) -> str:
    """The store's URL with a relative SQLite path made absolute.

    A replica's working directory is not that of whoever started Ray, so a relative path is taken from the
    checkout, where the settings file lies.

    Args:
        url: as the settings have it.
        home: another checkout, for a job that Ray runs in a copy of one.
    """
    if not url.startswith(_SQLITE):
        return url
    return f"{_SQLITE}{home / url.removeprefix(_SQLITE)}"
