"""One public tool a method for HTTP, gradio_client and MCP: ``<method>_run``, typed from its params."""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import gradio as gr

from app import share
from app.controls import kind_of
from backends.contract import InputError, Params, Upload
from backends.registry import Registered
from backends.runner import Runner
from backends.validation import allowed, validate

FILE_TYPE = str | None  # base64 text: a string is never a path here
REQUEST = "_request"  # what Gradio puts in; a field begins with a letter, so none has this name


def tool_name(method: Registered) -> str:
    return f"{method.card.package}_run"


def make_tool(method: Registered, runner: Runner) -> Callable[..., AsyncIterator[dict[str, Any]]]:
    """The tool's function; its name, signature and docstring are what the clients see."""
    fields = {n: f for n, f in method.Params.model_fields.items() if n != "seed"} | {"seed": method.Params.model_fields["seed"]}  # what matters comes first
    files = {name for name in fields if _is_file(method.Params, name)}

    async def tool(*args: Any, **kwargs: Any) -> AsyncIterator[dict[str, Any]]:
        given = dict(zip([*fields, REQUEST], args, strict=False)) | kwargs
        request = given.pop(REQUEST, None)
        try:
            for name in files & given.keys():
                given[name] = _file(name, given[name])
            params = validate(method.Params, given)
            visitor = str(getattr(request, "session_hash", None) or uuid.uuid4().hex)
            async for update in runner.subscribe(method.card.slug, params, visitor):
                if update.error is not None:
                    raise update.error
                frame = update.frame
                answer: dict[str, Any] = {
                    "progress": update.progress,
                    "message": update.message,
                    "metrics": dict(frame.metrics) if frame else {},
                    "run": update.run,
                }
                if update.state == "done" and update.made and frame:
                    made_by = frame.data.get("made_by", {})
                    answer |= {
                        "model": made_by.get("model"),
                        "data": made_by.get("data"),
                        "device": update.made.device,
                        "version": update.made.version,
                        "seconds": round(update.made.seconds, 3),
                        "source": update.source,
                        "links": links(method, params, update.run),
                    }
                yield answer
        except InputError as error:
            raise gr.Error(str(error), print_exception=False) from None

    annotations = {name: FILE_TYPE if name in files else info.annotation for name, info in fields.items()}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=info.get_default(call_default_factory=True), annotation=annotations[name])
        for name, info in fields.items()
    ]
    parameters.append(inspect.Parameter(REQUEST, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=gr.Request))
    tool.__name__ = tool.__qualname__ = tool_name(method)
    tool.__signature__ = inspect.Signature(parameters, return_annotation=dict)  # type: ignore[attr-defined]
    tool.__annotations__ = {**annotations, REQUEST: gr.Request, "return": dict}
    tool.__doc__ = _docstring(method, files)
    return tool


def links(method: Registered, params: Params, run: str) -> dict[str, str]:
    """Where the run can be seen and fetched, from the server's root."""
    query = share.query(method, params)
    return {"page": f"/m/{method.card.slug}" + (f"?{query}" if query else "")} | {kind: f"/runs/{run}.{kind}" for kind in ("json", "csv", "html", "ipynb")}


def _is_file(model: type[Params], name: str) -> bool:
    return kind_of(model, name)[0] == "upload"


def _file(field: str, value: Any) -> Any:
    """An upload out of base64 text, or of ``{"name": ..., "base64": ...}`` as an object or as JSON text."""
    if value is None or value == "" or isinstance(value, Upload):
        return value or None
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            raise InputError(field, "the text is neither base64 nor a JSON object", 'give base64 text or {"name": ..., "base64": ...}') from None
    if isinstance(value, dict):
        if not {"base64", "sha256"} & value.keys():
            raise InputError(field, "there is no content in it", 'give base64 text or {"name": ..., "base64": ...}; paths are never read')
        return value
    return {"name": field, "base64": value}


def _docstring(method: Registered, files: set[str]) -> str:
    card = method.card
    lines = [f"{card.title}. {card.aha}", "", "Parameters:"]
    for name, info in method.Params.model_fields.items():
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        unit = f"; unit: {extra['unit']}" if extra.get("unit") else ""
        takes = "base64 text of a file of at most 1 MB" if name in files else allowed(method.Params, name)
        lines.append(f"    {name}: {(info.description or '').rstrip('.')} ({takes}{unit}).")
    lines += ["Returns:", "    progress, message, metrics and run id; at the end also model, data, device, version, seconds and links."]
    return "\n".join(lines)
