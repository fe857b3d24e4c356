"""The served lab: FastAPI around Gradio, with health, static files, runs, links and drawer texts."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version as installed
from typing import Any

import anyio.to_thread
import gradio as gr
import orjson
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.middleware.gzip import GZipMiddleware

from app import about, assets, export, preview, render, share, shell, theme, thumbnails
from app.blocks import MethodOfRequest
from backends import registry
from backends.contract import InputError, Params
from backends.runner import LAB, Runner
from backends.runtime import device
from backends.store import StoredRun
from backends.validation import validate

FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
NEVER = {"Cache-Control": "no-store"}
DAY = {"Cache-Control": "max-age=3600"}
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png", ".csv": "text/csv", ".json": "application/json"}
RUN_ID = re.compile(r"[0-9a-f]{20}")
SHOWN_VERSIONS = ("playable-papers", "gradio", "torch", "plotly", "numpy")
QUICK_S = 5.0
THREADS = 100  # for the light endpoints here; methods compute in threads of the runner


def create_app(runner: Runner | None = None) -> FastAPI:
    """The whole application; ``runner`` renders for the browser."""
    lab_runner = runner or Runner(render.render)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        await anyio.to_thread.run_sync(assets.plotly_gzip)
        starting = asyncio.create_task(_prepare(lab_runner))
        yield
        starting.cancel()
        lab_runner.close()

    app = FastAPI(title="Playable Papers", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.runner = lab_runner
    app.add_middleware(GZipMiddleware, minimum_size=1_000)
    app.add_middleware(MethodOfRequest)

    @app.exception_handler(InputError)
    async def bad_input(request: Request, error: InputError) -> JSONResponse:
        status = 404 if error.field in ("method", "run") else 422
        return JSONResponse({"ok": False, "error": error.to_dict(), "status": status}, status)

    _static(app)
    _health(app, lab_runner)
    _methods(app, lab_runner)
    _runs(app, lab_runner)
    demo = shell.build(lab_runner)
    # Without this Gradio skips its check of file paths until launch() has run, which never happens here: any input
    # that takes a file would read any path of the server.
    demo.has_launched = True
    preview.install()
    warnings.filterwarnings("ignore", message="SSR mode is not supported")  # it is off; Gradio says so all the same
    return gr.mount_gradio_app(
        app,
        demo,
        path="/",
        theme=theme.theme(),
        head=theme.HEAD,
        ssr_mode=False,
        mcp_server=True,
        show_error=True,
        enable_monitoring=False,
        max_file_size="10mb",
        allowed_paths=[],
        footer_links=[],
        run_history=False,  # class machines are shared: nothing is kept in the browser
        favicon_path=str(assets.STATIC / "icons" / "logo.svg"),
    )


async def _prepare(runner: Runner) -> None:
    """Computes the quick default runs once after the start, one after the other: what a slider needs then lies in memory
    for the first visitor too, and his page shows a stored run even where ``playable warm`` was not called."""
    for method in registry.methods().values():
        preset = method.card.presets[0]
        if preset.seconds <= QUICK_S and not method.card.needs:  # loading a model waits until somebody wants it
            async for _ in runner.subscribe(method.card.slug, validate(method.Params, preset.params), LAB, fresh=True):
                pass


def _static(app: FastAPI) -> None:
    @app.get(assets.plotly_url())
    def plotly(request: Request) -> Response:
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(assets.plotly_gzip(), media_type="text/javascript", headers=FOR_EVER | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
        return FileResponse(assets.plotly_path(), media_type="text/javascript", headers=FOR_EVER)

    @app.get("/lab/{stamp}/{path:path}")
    def lab_file(stamp: str, path: str) -> Response:
        file = (assets.STATIC / path).resolve()
        if not file.is_relative_to(assets.STATIC) or not file.is_file() or file.suffix not in TYPES:
            return Response(status_code=404)
        return FileResponse(file, media_type=TYPES[file.suffix], headers=FOR_EVER if stamp == assets.stamp() else DAY)

    @app.get("/thumbnails/{slug}.svg")
    def thumbnail(slug: str) -> Response:
        svg = thumbnails.read(registry.get(slug).card.slug)
        if svg is None:  # not computed on this host yet: `playable warm` draws it
            return FileResponse(assets.STATIC / "icons" / "logo.svg", media_type=TYPES[".svg"], headers=NEVER)
        return Response(svg, media_type=TYPES[".svg"], headers=DAY)


def _health(app: FastAPI, runner: Runner) -> None:
    @app.get("/healthz")
    def healthz() -> dict[str, Any]:
        versions = {name: installed(name) for name in SHOWN_VERSIONS}
        return {"ready": True, "computations": runner.computations, "methods": len(registry.methods()), "device": device.describe(), "versions": versions}


def _methods(app: FastAPI, runner: Runner) -> None:
    @app.get("/m/{slug}")
    def method_page(slug: str, request: Request) -> Response:
        return RedirectResponse(shell.page_address(slug, request.url.query), status_code=307, headers=NEVER)

    @app.get("/m/{slug}/stored")
    def stored(slug: str, request: Request) -> Response:
        method = registry.get(slug)
        shared = share.read(method, dict(request.query_params))
        found = runner.stored(slug, shared.params)
        if found is None:
            return Response(status_code=204, headers=NEVER)
        stage = found.rendered(-1, render.render)
        query = share.query(method, shared.params, shared.preset)
        bar = {"state": "done", "place": None, "progress": 1.0, "message": found.frames[-1].message}
        bar |= {"source": "cache", "run": found.run, "stamp": found.made.stamp()}
        bar |= {"query": query or "", "href": f"/m/{slug}" + (f"?{query}" if query else ""), "error": None, "note": " ".join(shared.notes) or None}
        return Response(b'{"bar":' + orjson.dumps(bar) + b',"stage":' + (stage or "null").encode() + b"}", media_type="application/json", headers=NEVER)

    @app.get("/m/{slug}/about/{tab}")
    def about_tab(slug: str, tab: str, request: Request) -> Response:
        method = registry.get(slug)
        shared = share.read(method, dict(request.query_params))
        shown = request.query_params.get("_run", "")  # a run with a private file is found by its id alone

        def look_up(params: Params) -> StoredRun | None:
            by_id = runner.store.get(shown) if RUN_ID.fullmatch(shown) and params == shared.params else None
            return by_id or runner.stored(slug, params)

        text = about.fragment(slug, tab, shared.params, look_up, str(request.base_url).rstrip("/"))
        return Response(text, media_type="text/html", headers=NEVER)


def _runs(app: FastAPI, runner: Runner) -> None:
    def find(run: str) -> StoredRun:
        found = runner.store.get(run) if RUN_ID.fullmatch(run) else None
        if found is None:
            raise InputError("run", "there is no stored run of this id", "run it again; results are kept for a while only")
        return found

    @app.get("/runs/{run}.json")
    def run_json(run: str) -> Response:
        found = find(run)
        return _download(orjson.dumps(run_record(found)), "application/json", found, "json")

    @app.get("/runs/{run}.csv")
    def run_csv(run: str) -> Response:
        found = find(run)
        return _download(export.csv_text(found.frames[-1]).encode(), "text/csv; charset=utf-8", found, "csv")

    @app.get("/runs/{run}.html")
    def run_html(run: str) -> Response:
        found = find(run)
        return _download(export.html_page(found.slug, found.params, found.frames[-1]).encode(), "text/html; charset=utf-8", found, "html")

    @app.get("/runs/{run}.ipynb")
    def run_notebook(run: str) -> Response:
        found = find(run)
        return _download(orjson.dumps(export.notebook(found.slug, found.params, found.frames[-1])), "application/x-ipynb+json", found, "ipynb")


def _download(content: bytes, media_type: str, found: StoredRun, ending: str) -> Response:
    name = f"{found.slug}-{found.run[:8]}.{ending}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=media_type, headers=NEVER | headers)


def run_record(found: StoredRun) -> Mapping[str, Any]:
    """A stored run as JSON: who made it, with which params, and its last frame."""
    made = found.made
    return {
        "run": found.run,
        "method": found.slug,
        "version": made.version,
        "computed_at": made.at,
        "seconds": made.seconds,
        "device": made.device,
        "params": found.params.model_dump(mode="json"),
        "frame": found.frames[-1].to_json(),
    }


def serve(host: str, port: int) -> None:
    """Serves the lab until it is interrupted; the address is printed."""
    import uvicorn

    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    print(f"Playable Papers is at http://{shown}:{port}", flush=True)
    uvicorn.run(create_app(), host=host, port=port, log_level="warning", timeout_graceful_shutdown=3)
