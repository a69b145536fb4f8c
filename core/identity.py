"""When two requests are the same.

The key is a BLAKE2b-128 digest (RFC 7693) of an envelope in which every part is preceded by its length, so
that
no two different requests share an encoding: tenant `ab` with deployment `c` is not tenant `a` with `bc`. The
parts are, in order: the format's version, tenant, deployment, evidence revision, contract revision,
fingerprint of the engine, the task with its context revision, and the request in its compact form.

The request is keyed by exclusion: every member of a body counts, known or not, unless `NOT_IN_THE_KEY` in
`core.contract.request` names it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

KEY_VERSION: Final = b"precedent-key-1"
KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose request it is and under which revisions it is asked."""

    tenant: str
    deployment: str
    evidence: str | None = None  # revision of the documents that the state was drawn from
    contract: str | None = None  # revision of what the questions mean


KeyOf = Callable[[bytes], bytes]


def keyer(identity: Identity, fingerprint: str, task: str | None = None) -> KeyOf:
    """Return the function from a request's compact form to its 16-byte key.

    Everything but the request is hashed once, here, since it is the same for many requests.

    Args:
        identity: whose requests will be keyed.
        fingerprint: digest of everything in the engine that can move an answer.
        task: the registered task that answers, with its context revision; None for none.
    """
    prefix = hashlib.blake2b(digest_size=KEY_BYTES)
    fixed = (identity.tenant, identity.deployment, identity.evidence, identity.contract, fingerprint, task)
    for part in (KEY_VERSION, *map(_part, fixed)):
        prefix.update(len(part).to_bytes(8, "little") + part)

    def key_of(compact: bytes) -> bytes:
        digest = prefix.copy()
        digest.update(len(compact).to_bytes(8, "little"))
        digest.update(compact)
        return digest.digest()

    return key_of


def _part(text: str | None) -> bytes:
    # A marker keeps "absent" and "empty" apart; any text has an encoding, half a surrogate pair too.
    return b"-" if text is None else b"+" + text.encode(errors="surrogatepass")
