"""Make an API key: `python -m deployments.keys --tenant acme --scopes decide,read >> keys.yaml`.

The entry for the keys file goes to standard output, and the key itself, which is shown this once, to standard
error.
"""

import argparse
import sys

import yaml

from deployments.auth import MAX_TENANT_CHARS, Right, new_key


def main(arguments: list[str]) -> int:
    """Print an entry for the keys file, and the key."""
    parser = argparse.ArgumentParser(prog="python -m deployments.keys", description="Make an API key.")
    parser.add_argument(
        "--tenant", type=_tenant, required=True, help="whose key it is; tenants share nothing"
    )
    parser.add_argument(
        "--scopes", type=_scopes, default=["decide"], help=f"some of {','.join(Right)}; decide when left out"
    )
    parser.add_argument("--first", action="store_true", help="begin a new file")
    given = parser.parse_args(arguments)
    key, digest = new_key()
    entry = yaml.safe_dump(
        [{"sha256": digest, "tenant": given.tenant, "scopes": given.scopes}], sort_keys=False
    )
    print(("keys:\n" if given.first else "") + entry, end="")
    print(f"the key, shown once: {key}", file=sys.stderr)
    return 0


def _tenant(text: str) -> str:
    if not 1 <= len(text) <= MAX_TENANT_CHARS:
        raise argparse.ArgumentTypeError(f"has {len(text)} characters; 1 to {MAX_TENANT_CHARS} are allowed")
    return text


def _scopes(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in set(Right)]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no scope {unknown[0]!r}; use {', '.join(Right)}")
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
