"""What the browser loads from us: script tags, mount lines, and plotly's own JavaScript."""

from __future__ import annotations

import functools
import gzip
import hashlib
from pathlib import Path

from backends.runtime.folders import ROOT

STATIC = ROOT / "static"


@functools.cache
def stamp() -> str:
    """Changes with the scripts, icons and the stylesheet, so that browsers may keep them for ever."""
    digest = hashlib.sha256()
    for path in sorted(p for kind in ("js/**/*.js", "css/*.css", "icons/*.svg") for p in STATIC.glob(kind)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


def static_url(path: str) -> str:
    """The versioned address of a file of ``static/``."""
    return f"/lab/{stamp()}/{path}"


def tags() -> str:
    """The script tag for ``gr.HTML(head=...)``; Gradio loads each source once a page."""
    return f'<script src="{static_url("js/lab.js")}"></script>'


def mount_script(kind: str, *events: str) -> str:
    """The ``js_on_load`` of a component of ours; Gradio finds custom events by their quoted names in it."""
    named = " ".join(f"'{event}'" for event in events)
    return f"Playable.mount('{kind}', element, {{props, trigger, watch}}); /* {named} */"


@functools.cache
def plotly_path() -> Path:
    import plotly

    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


@functools.cache
def plotly_url() -> str:
    """The address of plotly.js; it names the version, so that it never changes."""
    import plotly

    return f"/lab/plotly-{plotly.__version__}.min.js"


@functools.cache
def plotly_gzip() -> bytes:
    """plotly.js compressed once (4.8 to 1.5 MB); sixty visitors would otherwise compress it sixty times."""
    return gzip.compress(plotly_path().read_bytes(), 6, mtime=0)
