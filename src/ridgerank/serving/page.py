"""The web page: files of the package, by a fixed list of names."""

from collections.abc import Callable
from importlib.resources import files

from fastapi import FastAPI, Response

from ridgerank.serving.refusals import Refusal

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
PATHS = frozenset(FILES)
"""They hold nothing of the store, and are served without a key."""


def mount(app: FastAPI) -> None:
    """Serve the page."""
    for path, (name, kind) in FILES.items():
        app.get(path, include_in_schema=False)(_serving(name, kind))


def _serving(name: str, kind: str) -> Callable[[], Response]:
    file = files("ridgerank.serving") / "page" / name

    def serve() -> Response:
        if not file.is_file():
            raise Refusal(404, "no_page", "this installation has no web page")
        return Response(file.read_bytes(), media_type=kind)

    return serve
