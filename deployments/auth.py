"""API keys: whose request it is, and what that caller may do.

A keys file names each key by its SHA-256 digest, so that the file alone opens nothing. Keys are 256 random
bits; a slow password hash would add nothing but time. The tenant comes from the key and from nowhere else.

    keys:
      - sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        tenant: acme
        scopes: [decide, read]
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from core.errors import (
    AmbiguousCredentials,
    Forbidden,
    MissingCredentials,
    SettingsError,
    WrongCredentials,
)

DEFAULT_TENANT = "default"
MAX_TENANT_CHARS = 128


class Right(StrEnum):
    """What a key may be used for."""

    DECIDE = "decide"  # ask for decisions
    TEACH = "teach"  # register tasks, give labels
    PURGE = "purge"  # fence off stored decisions
    READ = "read"  # see counters and tasks


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is, what it may do, and a name for the audit log that reveals no key."""

    tenant: str
    scopes: frozenset[Right]
    name: str

    def require(self, right: Right) -> None:
        """Refuse a caller without `right`.

        Raises:
            Forbidden: names the one that is missing.
        """
        if right not in self.scopes:
            raise Forbidden(f"what needs the scope {right.value}")


ANYBODY = Caller(DEFAULT_TENANT, frozenset(Right), "anybody on this machine")
"""The caller of a service without keys, which only listens on loopback."""


class Callers(Protocol):
    """Says whose request it is."""

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Whose request it is, by its headers."""
        ...


class Open:
    """No keys: every request is anybody's, whatever its headers say."""

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Anybody."""
        return ANYBODY


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    tenant: Annotated[str, StringConstraints(min_length=1, max_length=MAX_TENANT_CHARS)]
    scopes: list[Right] = Field(min_length=1)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: list[_Entry]


class Keys:
    """The keys of one file, read again when it changes.

    A file that became unreadable or wrong leaves the keys of the last good one in force and says so once: a
    typing error while revoking one key must not lock everybody out.

    Args:
        path: the keys file.

    Raises:
        SettingsError: the file cannot be read, or is wrong, at start-up.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._callers = read_keys(path)
        self._seen = _stamp(path)

    def reload(self) -> str | None:
        """Read the file again if it changed; return what is wrong with it, once per change."""
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            self._callers = read_keys(self._path)
        except SettingsError as error:
            return f"{error}; the keys read before stay in force"
        return None

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Whose request it is, by its headers.

        Raises:
            MissingCredentials: no Bearer key.
            WrongCredentials: a key that is not in the file.
            AmbiguousCredentials: more than one Authorization header: whoever reads another one than we do
                would see another caller.
        """
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) > 1:
            raise AmbiguousCredentials
        scheme, _, key = given[0].partition(b" ") if given else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not key.strip():
            raise MissingCredentials
        digest = hashlib.sha256(key.strip()).digest()
        # Looking a digest up leaks at most how much of a digest matches, which helps nobody to a key; the
        # comparison in constant time keeps even that from depending on the table.
        known = self._callers.get(digest[:8])
        if known is None or not hmac.compare_digest(known[0], digest):
            raise WrongCredentials
        return known[1]


def read_keys(path: Path) -> dict[bytes, tuple[bytes, Caller]]:
    """Read a keys file: the first 8 bytes of each digest -> the digest and its caller.

    Raises:
        SettingsError: what is wrong, and where.
    """
    try:
        raw = yaml.safe_load(path.read_bytes())
        entries = _File.model_validate(raw).keys
    except OSError as error:
        raise SettingsError("keys_file", f"{path} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise SettingsError("keys_file", f"{path} is not YAML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise SettingsError("keys_file", f"{path}: {where}: {first['msg']}") from None
    callers = {}
    for entry in entries:
        digest = bytes.fromhex(entry.sha256)
        if digest[:8] in callers:
            raise SettingsError("keys_file", f"{path}: the key {entry.sha256[:8]}… stands twice; keep one")
        callers[digest[:8]] = (
            digest,
            Caller(entry.tenant, frozenset(entry.scopes), f"key {entry.sha256[:8]}"),
        )
    return callers


def new_key() -> tuple[str, str]:
    """A new key, and the digest that goes into the file."""
    key = "pk-" + secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
