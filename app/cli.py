"""The command line: ``playable serve | list | describe | run | warm | claims``.

Progress and faults go to standard error, results to standard output. Exit codes: 0 done, 1 a computation failed,
2 bad input, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import logging
import sys
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from backends.contract import UPLOAD_LIMIT_BYTES, Frame, InputError, Params, Upload
from backends.registry import THEMES, Registered, get, methods
from backends.runner import Runner, Update
from backends.validation import validate

VISITOR = "command-line"
WARM_LIMIT_S = 20.0  # what `warm --all` computes; longer presets are for the person who wants them
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

P = ParamSpec("P")
T = TypeVar("T")

app = typer.Typer(
    name="playable",
    help="Play with research methods: serve the lab, or run a method from here.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _plain_faults(command: Callable[P, None]) -> Callable[P, None]:
    """Bad input ends a command with one line on standard error and code 2, Ctrl-C with 130."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except InputError as error:
            typer.echo(str(error), err=True)
            # The runner names the field "run" when it was the computation that failed, not what was given.
            raise typer.Exit(FAILED if error.field == "run" else BAD_INPUT) from None
        except KeyboardInterrupt:
            typer.echo("\nstopped", err=True)
            raise typer.Exit(INTERRUPTED) from None

    return guarded


@app.command()
@_plain_faults
def serve(
    host: Annotated[str, typer.Option(envvar="HOST", help="Address to listen on; 0.0.0.0 for other machines too.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="PORT", min=0, max=65535, help="Port to listen on.")] = 7860,
) -> None:
    """Serve the lab to browsers, HTTP and MCP clients."""
    from app import server

    server.serve(host, port)


@app.command("list")
@_plain_faults
def list_methods(markdown: Annotated[bool, typer.Option("--markdown", help="The table of README.md.")] = False) -> None:
    """List the methods."""
    if markdown:
        typer.echo(markdown_table())
        return
    rows = [(m.card.slug, THEMES[m.card.theme], m.card.title) for m in methods().values()]
    typer.echo(aligned(("method", "theme", "title"), rows))


@app.command()
@_plain_faults
def describe(slug: str) -> None:
    """Print a method's card and the schema of its params as JSON."""
    method = get(slug)
    described = {"card": method.card, "version": method.version, "params": method.Params.model_json_schema()}
    typer.echo(json.dumps(described, default=_plain, indent=2, ensure_ascii=False))


@app.command()
@_plain_faults
def run(
    slug: str,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A param; @FILE for a file. May be repeated.")] = None,
    preset: Annotated[str | None, typer.Option(help="Start from this preset instead of the defaults.")] = None,
    saved: Annotated[Path | None, typer.Option("--params", metavar="FILE", help="Start from settings that a page saved as a file.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the last frame here as JSON.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a self-contained page here.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute even when a stored run exists.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Where in the code a computation failed.")] = False,
) -> None:
    """Run a method and print its final metrics as one JSON object."""
    logging.getLogger("backends.runs").disabled = not traceback
    method = get(slug)
    for option, path in (("--json", json_file), ("--html", html_file)):
        if path is not None and not path.absolute().parent.is_dir():
            raise InputError(option, f"there is no folder {path.absolute().parent}", "make it first")
        if path is not None and path.is_dir():
            raise InputError(option, f"{path} is a folder", "give the name of a file in it")
    start = dict(method.card.preset(preset).params) if preset is not None else {}
    if saved is not None:
        start |= read_saved(slug, saved)
    params = validate(method.Params, start | read_settings(method.Params, settings or []))
    frame = _with_runner(lambda runner: follow(runner, method, params, quiet=quiet, fresh=fresh))
    if json_file is not None:
        json_file.write_text(json.dumps(frame.to_json()), encoding="utf-8")
    if html_file is not None:
        from app import export

        html_file.write_text(export.html_page(slug, params, frame), encoding="utf-8")
    typer.echo(json.dumps(dict(frame.metrics), ensure_ascii=False))


@app.command()
@_plain_faults
def warm(
    slugs: Annotated[list[str] | None, typer.Argument(metavar="[SLUG]...", help="Methods; all without one.")] = None,
    every: Annotated[bool, typer.Option("--all", help=f"Every preset of at most {WARM_LIMIT_S:g} s, not only the default one.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Compute and store the runs that pages show at opening, and draw the thumbnails."""
    from app import thumbnails

    async def compute(runner: Runner) -> None:
        for method in _chosen(slugs):
            for preset in method.card.presets:
                default = preset is method.card.presets[0]
                if not default and (not every or preset.seconds > WARM_LIMIT_S):
                    continue
                params = validate(method.Params, preset.params)
                frame = await follow(runner, method, params, quiet=quiet, label=f"{method.card.slug} {preset.name}")
                if default:
                    try:
                        thumbnails.write(method.card.slug, frame, params)
                    except LookupError as error:  # a method of panels alone: the gallery shows it without a picture
                        typer.echo(str(error.args[0]), err=True)

    _with_runner(compute)


@app.command()
@_plain_faults
def claims(
    slug: Annotated[str | None, typer.Argument(help="A method; all without one.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Measure again what the papers claim, and print the table."""
    rows = _with_runner(lambda runner: measure_claims(runner, _chosen([slug] if slug else None), quiet=quiet))
    typer.echo(aligned(("method", "claim", "stated", "here", "tolerance", "within", "setting", "source"), rows))


async def measure_claims(runner: Runner, chosen: Iterable[Registered], *, quiet: bool = True) -> list[tuple[str, ...]]:
    """One row a claim: method, claim, the paper's value, the value measured here, tolerance, yes or no, setting, source."""
    rows: list[tuple[str, ...]] = []
    for method in chosen:
        measured: dict[str, Mapping[str, Any]] = {}  # claims that share a run cost one computation
        for claim in method.card.claims:
            params = validate(method.Params, {**method.card.preset(claim.preset).params, **claim.params})
            key = params.model_dump_json()
            if key not in measured:
                frame = await follow(runner, method, params, quiet=quiet, fresh=True, label=f"{method.card.slug} {claim.name}")
                measured[key] = frame.metrics
            here = measured[key].get(claim.metric)
            number = float(here) if isinstance(here, int | float) else None
            within = "not defined" if number is None else "yes" if abs(number - claim.value) <= claim.tolerance else "no"
            shown = "-" if number is None else f"{number:.6g}"
            rows.append((method.card.slug, claim.text, f"{claim.value:g}", shown, f"{claim.tolerance:g}", within, claim.setting, claim.source))
    return rows


async def follow(runner: Runner, method: Registered, params: Params, *, quiet: bool = False, fresh: bool = False, label: str = "") -> Frame:
    """The last frame of a run, with progress on standard error; a stored run is marked. Raises InputError when it failed."""
    stored = None if fresh else runner.stored(method.card.slug, params, VISITOR)
    if stored is not None:  # whoever reads a terminal has no use for a replay
        if not quiet:
            typer.echo(f"{label or method.card.slug}: stored run, {stored.made.stamp()}", err=True)
        return stored.frames[-1]
    progress = _Progress(quiet, label)
    last: Update | None = None
    async for last in runner.subscribe(method.card.slug, params, VISITOR, fresh=fresh):
        if last.error is None:  # a fault is said once, as the command's last line
            progress.show(last)
    progress.end()
    if last is None or last.state != "done" or last.frame is None:
        raise (last and last.error) or InputError("run", "the run was stopped", "start it again")
    return last.frame


class _Progress:
    """One line of progress: rewritten in place on a terminal, else written anew when it says something new."""

    def __init__(self, quiet: bool, label: str) -> None:
        self._quiet, self._label = quiet, f"{label}: " if label else ""
        self._terminal = sys.stderr.isatty()
        self._last = ""

    def show(self, update: Update) -> None:
        place = f" (place {update.place})" if update.place else ""
        line = f"{self._label}{update.progress:4.0%} {update.message}{place}"
        if self._quiet or line == self._last:
            return
        self._last = line
        typer.echo(f"\r\x1b[K{line}" if self._terminal else line, err=True, nl=not self._terminal)

    def end(self) -> None:
        if self._last and self._terminal:
            typer.echo("", err=True)


def _with_runner(work: Callable[[Runner], Coroutine[Any, Any, T]]) -> T:
    """Ctrl-C cancels the work; closing the runner then stops what still computes."""
    runner = Runner()
    try:
        return asyncio.run(work(runner))
    finally:
        runner.close()


def _chosen(slugs: Sequence[str] | None) -> list[Registered]:
    return [get(slug) for slug in slugs] if slugs else list(methods().values())


def read_saved(slug: str, path: Path) -> dict[str, Any]:
    """The params of a settings file; raises InputError when it is not one, or is another method's."""
    try:
        content = json.loads(path.read_bytes())
        method, params = content["method"], dict(content["params"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("--params", f"{path} is not a settings file ({type(error).__name__})", "save one from a method's page") from None
    if method != slug:
        raise InputError("--params", f"these are settings of {method}", f"run that method, or choose settings of {slug}")
    return params


def read_settings(model: type[Params], settings: Iterable[str]) -> dict[str, Any]:
    """The values of ``name=value`` texts: JSON where it parses, else text, ``@file`` for an upload.

    Raises InputError for a text without ``=`` or a file that cannot be read.
    """
    values: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise InputError("--set", f"{setting!r} has no =", "write --set name=value")
        field = model.model_fields.get(name)
        if field is not None and text.startswith("@") and _takes_upload(field.annotation):
            values[name] = _read_upload(name, Path(text[1:]))
        else:
            values[name] = _json_or_text(text)
    return values


def _takes_upload(annotation: Any) -> bool:
    return annotation is Upload or any(_takes_upload(part) for part in typing.get_args(annotation))


def _read_upload(field: str, path: Path) -> Upload:
    try:
        with path.open("rb") as file:
            content = file.read(UPLOAD_LIMIT_BYTES + 1)
    except OSError as error:
        raise InputError(field, f"{path} cannot be read ({error.strerror})", "give the path of a file after @") from None
    if len(content) > UPLOAD_LIMIT_BYTES:
        raise InputError(field, f"{path} is too large", f"the limit is {UPLOAD_LIMIT_BYTES:,} bytes")
    return Upload.of(path.name, content)


def _json_or_text(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")  # json takes NaN and Infinity by itself

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return text


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if callable(value):  # Card.deterministic
        return "depends on the params"
    raise TypeError(f"{type(value).__name__} in a card")


def markdown_table() -> str:
    """The methods as README.md shows them, between its two marks."""
    cards = [method.card for method in methods().values()]
    rows = [f"| {THEMES[c.theme]} | **{c.title}** (`{c.slug}`) | {c.aha} | [{c.paper.title}]({c.paper.url}) |" for c in cards]
    return "\n".join(["| Theme | Method | The idea | Paper |", "| --- | --- | --- | --- |", *rows])


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as text, columns aligned.

    >>> print(aligned(("a", "long"), [("xyz", "1")]))
    a    long
    xyz  1
    """
    table = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
