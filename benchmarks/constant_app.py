"""A peer for the ingress: reads a body, answers the same bytes every time, under the settings of a Router."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ray import serve
from ray.serve.deployment import Application

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Constant:
    """An ASGI application with nothing to decide."""

    def __init__(self, answer_bytes: int) -> None:
        self._body = b"." * answer_bytes
        self._headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % answer_bytes),
            (b"x-typesafe-request-id", b"0" * 24),
        ]

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Read the body, send the constant."""
        if scope["type"] == "lifespan":
            while True:
                phase = (await receive())["type"]
                await send({"type": f"{phase}.complete"})
                if phase == "lifespan.shutdown":
                    return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


class Peer:
    """Wrapped as the Router is."""

    def __init__(self, answer_bytes: int) -> None:
        self._app = Constant(answer_bytes)

    def __serve_build_asgi_app__(self) -> Constant:
        """The application that Serve puts behind the ingress."""
        return self._app


def build(args: dict[str, Any]) -> Application:
    """Deploy the constant with the options that matter for a Router's speed."""
    deployment = serve.deployment(
        name="Peer",
        max_ongoing_requests=args["max_ongoing_requests"],
        ray_actor_options={"num_cpus": args["num_cpus"]},
    )(serve.ingress()(Peer))
    return deployment.bind(args["answer_bytes"])
