"""The same request in other bytes: spaces and escapes do not make another one."""

from core.contract.request import open_body
from core.contract.strict_json import looks_spaced
from core.errors import MalformedBody
from core.identity import KeyOf

MAX_REMEMBERED = 100_000


class Spellings:
    """From a body to its request's key, without validating anything.

    A body in compact form is what its key is made of, so its digest is the key. Any other body is decoded
    once, and its digest is then remembered with the key.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, bytes] = {}

    def key_of(self, body: bytes, digest: bytes, key_of: KeyOf) -> bytes | None:
        """The key of `body` where it is not its digest; None where that is all there is, or it is not JSON.

        Args:
            body: as it came.
            digest: what `key_of` makes of it.
            key_of: from a compact form to its key.
        """
        known = self._keys.get(digest)
        if known is not None or not looks_spaced(body):
            return known
        try:
            key = key_of(open_body(body).compact)
        except MalformedBody:
            return None
        self.remember(digest, key)
        return key

    def learn(self, body: bytes, compact: bytes, key: bytes, key_of: KeyOf) -> None:
        """Remember the key of a body that was decoded on the way to its request."""
        if compact != body:
            self.remember(key_of(body), key)

    def remembered(self, digest: bytes) -> bytes | None:
        """The key that was remembered for a body with this digest."""
        return self._keys.get(digest)

    def remember(self, digest: bytes, key: bytes) -> None:
        """Remember the key of the body with this digest."""
        if len(self._keys) >= MAX_REMEMBERED:
            del self._keys[next(iter(self._keys))]
        self._keys[digest] = key

    def forget(self) -> None:
        """Meet every spelling as if for the first time."""
        self._keys.clear()
