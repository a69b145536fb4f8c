import os

import pytest
import yaml

from core.errors import (
    AmbiguousCredentials,
    Forbidden,
    MissingCredentials,
    SettingsError,
    WrongCredentials,
)
from deployments.auth import Keys, Right, new_key, read_keys


def write_keys(path, *entries):
    path.write_text(yaml.safe_dump({"keys": list(entries)}))
    status = os.stat(path)
    os.utime(
        path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000)
    )  # a coarse file clock must not hide it
    return path


def entry(tenant, *scopes):
    key, digest = new_key()
    return key, {"sha256": digest, "tenant": tenant, "scopes": list(scopes or ("decide",))}


def bearer(key, scheme="Bearer"):
    return [(b"authorization", f"{scheme} {key}".encode())]


def test_a_key_is_its_tenant_and_its_scopes(tmp_path):
    key, acme = entry("acme", "decide", "read")
    keys = Keys(write_keys(tmp_path / "keys.yaml", acme))

    caller = keys.caller(bearer(key))

    assert (caller.tenant, caller.scopes) == ("acme", frozenset({Right.DECIDE, Right.READ}))
    assert key not in caller.name


def test_the_scheme_is_read_in_any_case(tmp_path):
    key, acme = entry("acme")
    keys = Keys(write_keys(tmp_path / "keys.yaml", acme))

    assert keys.caller(bearer(key, "bearer")).tenant == "acme"


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([], MissingCredentials),
        ([(b"authorization", b"")], MissingCredentials),
        ([(b"authorization", b"Bearer")], MissingCredentials),
        ([(b"authorization", b"Bearer   ")], MissingCredentials),
        ([(b"authorization", b"Basic dXNlcjpwYXNz")], MissingCredentials),
        ([(b"x-api-key", b"pk-x")], MissingCredentials),
        ([(b"authorization", b"Bearer pk-wrong")], WrongCredentials),
        ([(b"authorization", "Bearer clé".encode())], WrongCredentials),
        ([(b"authorization", b"Bearer \xff\xfe")], WrongCredentials),
    ],
)
def test_anything_but_a_known_bearer_key_is_refused(tmp_path, headers, error):
    _, acme = entry("acme")
    keys = Keys(write_keys(tmp_path / "keys.yaml", acme))

    with pytest.raises(error):
        keys.caller(headers)


def test_a_second_authorization_header_is_refused_even_when_both_are_right(tmp_path):
    key, acme = entry("acme")
    keys = Keys(write_keys(tmp_path / "keys.yaml", acme))

    with pytest.raises(AmbiguousCredentials):
        keys.caller(bearer(key) + bearer(key))


def test_no_header_but_the_key_names_a_tenant(tmp_path):
    key, acme = entry("acme")
    keys = Keys(write_keys(tmp_path / "keys.yaml", acme))

    caller = keys.caller([*bearer(key), (b"x-tenant", b"other"), (b"x-forwarded-user", b"other")])

    assert caller.tenant == "acme"


def test_a_scope_that_a_key_lacks_is_named(tmp_path):
    key, acme = entry("acme", "decide")
    caller = Keys(write_keys(tmp_path / "keys.yaml", acme)).caller(bearer(key))

    caller.require(Right.DECIDE)
    with pytest.raises(Forbidden, match="purge"):
        caller.require(Right.PURGE)


def test_a_changed_file_is_read_again(tmp_path):
    old_key, acme = entry("acme")
    path = write_keys(tmp_path / "keys.yaml", acme)
    keys = Keys(path)
    key, globex = entry("globex")

    write_keys(path, globex)

    assert keys.reload() is None
    assert keys.caller(bearer(key)).tenant == "globex"
    with pytest.raises(WrongCredentials):
        keys.caller(bearer(old_key))


def test_a_file_that_became_wrong_leaves_the_keys_in_force_and_is_reported_once(tmp_path):
    key, acme = entry("acme")
    path = write_keys(tmp_path / "keys.yaml", acme)
    keys = Keys(path)

    path.write_text("keys: [")

    assert "stay in force" in (keys.reload() or "")
    assert keys.reload() is None
    assert keys.caller(bearer(key)).tenant == "acme"


def test_a_file_that_is_gone_leaves_the_keys_in_force(tmp_path):
    key, acme = entry("acme")
    path = write_keys(tmp_path / "keys.yaml", acme)
    keys = Keys(path)

    path.unlink()

    assert keys.reload() is not None
    assert keys.caller(bearer(key)).tenant == "acme"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("keys: [", "not YAML"),
        ("", "the file"),
        ("keys: [{sha256: short, tenant: a, scopes: [decide]}]", "keys.0.sha256"),
        ("keys: [{sha256: '" + "0" * 64 + "', tenant: '', scopes: [decide]}]", "keys.0.tenant"),
        ("keys: [{sha256: '" + "0" * 64 + "', tenant: a, scopes: [decied]}]", "keys.0.scopes.0"),
        ("keys: [{sha256: '" + "0" * 64 + "', tenant: a, scopes: [decide], tennant: b}]", "keys.0.tennant"),
        ("keys: [{sha256: '" + "0" * 64 + "', tenant: a, scopes: []}]", "keys.0.scopes"),
    ],
)
def test_a_wrong_file_is_refused_at_start_with_the_place(tmp_path, content, says):
    path = tmp_path / "keys.yaml"
    path.write_text(content)

    with pytest.raises(SettingsError, match=says):
        read_keys(path)


def test_a_key_that_stands_twice_is_refused(tmp_path):
    _, acme = entry("acme")

    with pytest.raises(SettingsError, match="stands twice"):
        read_keys(write_keys(tmp_path / "keys.yaml", acme, {**acme, "tenant": "other"}))


def test_a_missing_file_is_refused_at_start(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        Keys(tmp_path / "none.yaml")
