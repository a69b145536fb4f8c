"""Send every request of `examples/requests` to a running service, twice, and show what came back.

    python -m examples.demo [--url http://127.0.0.1:8000]

The second round is replayed: the same answers, byte for byte, in a fraction of the time.
"""

import argparse
import http.client
import json
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

REQUESTS = Path(__file__).parent / "requests"
DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT_S = 30.0
CONNECTIONS: dict[str, type[http.client.HTTPConnection]] = {
    "http": http.client.HTTPConnection,
    "https": http.client.HTTPSConnection,
}
HEADINGS = ("request", "question", "answer", "confidence", "margin", "first", "ms", "again", "ms")


class DemoError(Exception):
    """What went wrong, in a sentence for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, and how long it took."""

    body: dict[str, Any]
    took_ms: float

    @property
    def source(self) -> str:
        """Where the answers came from: model, replay or coalesced."""
        return str(self.body.get("x_precedent", {}).get("source", "?"))

    def margin(self, question: str) -> float | None:
        """How far the answer is from flipping, 0 to 1; None where the server does not say."""
        margin: float | None = self.body.get("x_precedent", {}).get("margins", {}).get(question)
        return margin


@dataclass(frozen=True, slots=True)
class Example:
    """One request, by the name of its file, with both replies to it."""

    name: str
    first: Reply
    again: Reply

    @property
    def repeated(self) -> bool:
        """Whether both replies hold the same answers in the same order."""
        return json.dumps(self.first.body["answers"]) == json.dumps(self.again.body["answers"])


class Client:
    """One connection to the service, kept open.

    Args:
        url: of the service's root.

    Raises:
        DemoError: the address is not one of a web server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._root = urlsplit(url).path.rstrip("/")
        self._connection = _connection(url)

    def ask(self, body: bytes) -> Reply:
        """Send one request; errors as in `call`."""
        return self.call("POST", "/v1/systemone", body)

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Call a path of the service.

        Raises:
            DemoError: nobody answers, or the answer is an error.
        """
        about = {"Content-Type": "application/json", **(headers or {})}
        started = time.perf_counter()
        try:
            self._connection.request(method, self._root + path, body, about)
            response = self._connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise DemoError(
                f"no service answers at {self._url} ({_reason(error)}); start one with `make serve`, "
                "or name another with --url"
            ) from None
        took_ms = (time.perf_counter() - started) * 1e3
        if response.status not in (http.HTTPStatus.OK, http.HTTPStatus.ACCEPTED):
            raise DemoError(f"{self._url} answered {response.status}: {raw[:500].decode(errors='replace')}")
        return Reply(json.loads(raw), took_ms)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    try:
        kind = CONNECTIONS[parts.scheme]
        if parts.hostname:
            return kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
    except (KeyError, ValueError):  # another scheme, or a port that is no number
        pass
    raise DemoError(f"{url!r} is no address of a service; one looks like {DEFAULT_URL}")


def run(client: Client, folder: Path = REQUESTS) -> list[Example]:
    """Send every request of `folder`, then every one of them again."""
    bodies = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.json"))}
    first = {name: client.ask(body) for name, body in bodies.items()}
    again = {name: client.ask(body) for name, body in bodies.items()}
    return [Example(name, first[name], again[name]) for name in bodies]


def rows(examples: Sequence[Example]) -> Iterator[tuple[str, ...]]:
    """One row per question; what belongs to the whole request stands in its first row."""
    for example in examples:
        whole = [
            cell
            for reply in (example.first, example.again)
            for cell in (reply.source, f"{reply.took_ms:.1f}")
        ]
        name = example.name
        for question, answer in example.first.body["answers"].items():
            confidence, margin = answer.get("confidence"), example.first.margin(question)
            yield name, question, in_words(answer), _number(confidence), _number(margin), *whole
            name, whole = "", [""] * 4


def in_words(answer: dict[str, Any]) -> str:
    """An answer as a person would say it, with its probability."""
    if answer["type"] == "noul":
        return f"{'yes' if answer['noul'] >= 0.5 else 'no'}, P(yes) {answer['noul']:.2f}"
    if answer["type"] == "choice":
        return f"{answer['choice']}, {answer['probabilities'][answer['choice']]:.2f}"
    nearest = answer["legend"][str(round(answer["score"]))]
    text = nearest if isinstance(nearest, str) else json.dumps(nearest, ensure_ascii=False)
    return f"{answer['score']:.2f} of {len(answer['legend']) - 1}: {text}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def table(lines: Sequence[Sequence[str]], widest: int = 44) -> str:
    """Lines under headings, in columns; longer cells are cut."""
    cut = [[_cut(cell, widest) for cell in line] for line in [HEADINGS, *lines]]
    widths = [max(map(columns, cells)) for cells in zip(*cut, strict=True)]
    cut.insert(1, ["─" * width for width in widths])
    return "\n".join("  ".join(map(_padded, line, widths)).rstrip() for line in cut)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: East Asian letters and emoji take two."""
    return sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - columns(cell))


def _cut(text: str, widest: int) -> str:
    if columns(text) <= widest:
        return text
    while columns(text) >= widest:
        text = text[:-1]
    return text + "…"


def summary(examples: Sequence[Example]) -> str:
    """What the two rounds were like, in a sentence each."""
    questions = sum(len(example.first.body["answers"]) for example in examples)
    lines = [f"{len(examples)} requests with {questions} questions, sent twice."]
    for title, replies in (
        ("First round ", [example.first for example in examples]),
        ("Second round", [example.again for example in examples]),
    ):
        replayed = sum(reply.source == "replay" for reply in replies)
        took_ms = median(reply.took_ms for reply in replies)
        lines.append(f"{title}: {replayed} replayed, median {took_ms:.1f} ms.")
    repeated = sum(example.repeated for example in examples)
    lines.append(f"Answered the same both times: {repeated} of {len(examples)}.")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration.

    Returns:
        0 when every answer was repeated, 1 when one was not, 2 when nothing could be asked.
    """
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="Ask real questions, twice.")
    parser.add_argument("--url", default=DEFAULT_URL, help="the service's root (default: %(default)s)")
    try:
        with closing(Client(parser.parse_args(arguments).url)) as client:
            examples = run(client)
    except DemoError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(list(rows(examples))))
    print()
    print(summary(examples))
    return 0 if all(example.repeated for example in examples) else 1


if __name__ == "__main__":
    sys.exit(main())
