"""The served lab from outside: health, files, links, runs, the public tool by HTTP and MCP, and attacks on file inputs."""

from __future__ import annotations

import asyncio
import csv
import gzip
import html
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client

from app.assets import plotly_url, stamp
from backends import registry
from tests.conftest import Lab

CHEAP = dict(registry.get("conformal-ksos").card.cheap)
FOREIGN = Path(__file__).resolve()  # a file of the server that no visitor may read
LIMIT_S = 60.0
FILE_TYPES = ("file", "image")


@pytest.fixture(scope="module")
def http(lab: Lab) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lab.url, timeout=LIMIT_S) as client:
        yield client


@pytest.fixture(scope="module")
def done(lab: Lab) -> dict[str, Any]:
    """The last answer of a cheap run by the public tool."""
    return Client(lab.url, verbose=False).predict(**CHEAP, api_name="/conformal_ksos_run")


def test_healthz_says_what_serves(http: httpx.Client) -> None:
    answer = http.get("/healthz").json()
    assert answer["ready"] is True
    assert answer["methods"] == len(registry.methods())
    assert {"gradio", "torch", "plotly"} <= answer["versions"].keys()
    assert answer["device"]


def test_a_method_link_leads_to_its_theme_page_with_everything_kept(http: httpx.Client) -> None:
    answer = http.get("/m/conformal-ksos?alpha=0.2&__theme=dark")
    assert answer.status_code == 307
    assert answer.headers["location"] == "/uncertainty?_m=conformal-ksos&alpha=0.2&__theme=dark"


def test_a_page_opens_on_the_method_that_its_address_names(http: httpx.Client) -> None:
    def chosen(query: str) -> str | None:
        found = re.search(r'"type":"tabs","props":\{[^}]*\}', http.get(f"/uncertainty{query}").text)
        assert found is not None
        return json.loads("{" + found[0] + "}")["props"].get("selected")

    assert chosen("?_m=conformal-ksos&alpha=0.2") == "conformal-ksos"
    assert chosen("?_m=voronoi-pc") == "voronoi-pc"
    assert chosen("?_m=lcs") is None  # a method of another theme
    assert chosen("") is None


def test_a_preview_of_a_link_names_the_method_and_not_gradio(http: httpx.Client) -> None:
    def tags(address: str) -> dict[str, str]:
        found = re.findall(r'<meta\s+(?:property|name)="((?:og|twitter):[^"]+)"\s+content="([^"]*)"', http.get(address, follow_redirects=True).text)
        assert len(found) == len(dict(found)), "a tag stands twice"
        return {name: html.unescape(content) for name, content in found}

    lab, method = tags("/"), tags("/m/voronoi-pc?seed=3")
    card = registry.get("voronoi-pc").card
    assert lab["og:title"] == "Playable Papers"
    assert method["og:title"] == f"{card.title} · Playable Papers"
    assert method["og:description"] == card.aha
    assert not any("gradio" in content.lower() for content in {**lab, **method}.values())
    assert http.get(method["og:image"]).headers["content-type"] == "image/png"
    assert tags("/uncertainty?_m=nobody")["og:title"] == "Playable Papers"


@pytest.mark.parametrize("path", ["/m/conformal-kso", "/m/conformal-kso/stored", "/runs/00000000000000000000.json", "/runs/..%2f..%2fetc.json"])
def test_what_does_not_exist_is_said_in_one_shape(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 404
    if "%2f" not in path:
        assert answer.json()["error"].keys() == {"field", "problem", "remedy"}


def test_plotly_is_compressed_and_kept_for_ever(http: httpx.Client) -> None:
    answer = http.get(plotly_url())
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert int(answer.headers["content-length"]) < 2_000_000
    plain = http.get(plotly_url(), headers={"accept-encoding": "identity"})
    assert plain.content[:200] == answer.content[:200]


OUTSIDE = ["../pyproject.toml", "js/../../pyproject.toml", "%2e%2e/pyproject.toml", "weights", "js", "js/none.js", "../backends/runner.py"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_static_files_stay_inside_their_folder(http: httpx.Client, path: str) -> None:
    assert http.get(f"/lab/{stamp()}/{path}").status_code in (404, 307)


def test_static_files_are_kept_for_ever_under_their_stamp(http: httpx.Client) -> None:
    answer = http.get(f"/lab/{stamp()}/js/lab.js")
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert "immutable" not in http.get("/lab/other/js/lab.js").headers["cache-control"]


def test_there_is_no_monitoring_and_no_foreign_address_in_a_page(http: httpx.Client) -> None:
    assert http.get("/monitoring/summary").status_code in (403, 404)
    text = http.get("/uncertainty").text
    assert "fonts.googleapis.com" not in text
    assert "cdn.plot.ly" not in text


def test_a_run_can_be_taken_home_in_every_form(http: httpx.Client, done: dict[str, Any]) -> None:
    record = http.get(done["links"]["json"]).json()
    assert record["frame"]["metrics"] == done["metrics"]
    assert record["params"]["n"] == CHEAP.get("n", record["params"]["n"])
    table = list(csv.reader(io.StringIO(http.get(done["links"]["csv"]).text)))
    assert len(table) > 5
    page = http.get(done["links"]["html"]).text
    assert "Plotly" in page
    notebook = http.get(done["links"]["ipynb"]).json()
    assert notebook["nbformat"] == 4
    assert http.get(done["links"]["page"]).status_code == 307


def test_the_second_call_is_a_marked_replay_with_equal_metrics(lab: Lab, done: dict[str, Any]) -> None:
    again = Client(lab.url, verbose=False).predict(**CHEAP, api_name="/conformal_ksos_run")
    assert again["source"] == "cache"
    assert again["metrics"] == done["metrics"]
    assert again["run"] == done["run"]


def test_the_tool_streams_and_its_progress_never_falls(lab: Lab) -> None:
    job = Client(lab.url, verbose=False).submit(**{**CHEAP, "seed": 77}, api_name="/conformal_ksos_run")
    seen = [answer["progress"] for answer in job]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"alpha": 1.5}, "alpha"),
        ({"data": "csv", "csv": str(FOREIGN)}, "base64"),
        ({"data": "csv", "csv": json.dumps({"name": "a.csv", "sha256": "0" * 64})}, "choose the file again"),
        ({"data": "csv", "csv": "A" * 1_100_000}, "1,000,000"),
    ],
)
def test_bad_input_reaches_a_client_in_plain_words(lab: Lab, given: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words) as caught:
        Client(lab.url, verbose=False).predict(**given, api_name="/conformal_ksos_run")
    assert "pydantic" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_the_mcp_tool_runs_a_method(lab: Lab) -> None:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def call() -> tuple[list[str], str]:
        async with streamable_http_client(f"{lab.url}/gradio_api/mcp/") as (reader, writer, _), ClientSession(reader, writer) as session:
            await session.initialize()
            names = [t.name for t in (await session.list_tools()).tools]
            result = await session.call_tool("conformal_ksos_run", CHEAP)
            return names, json.dumps([c.model_dump(mode="json") for c in result.content])

    names, text = asyncio.run(call())
    assert sorted(names) == sorted(f"{m.card.package}_run" for m in registry.methods().values())
    assert "mean_width" in text


def _events_with_files(http: httpx.Client) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for theme in registry.by_theme():
        text = http.get(f"/{theme}").text
        start = text.index("window.gradio_config = ") + len("window.gradio_config = ")
        config, _ = json.JSONDecoder().raw_decode(text[start:])
        kinds = {c["id"]: c for c in config["components"]}
        for event in config["dependencies"]:
            inputs = [kinds[i] for i in event["inputs"] if i in kinds]
            if any(c["type"] in FILE_TYPES for c in inputs):
                yield event, inputs


def test_no_event_that_takes_a_file_reads_a_file_of_the_server(http: httpx.Client) -> None:
    """A foreign path is posted to every such event; its content must not come back and the event must refuse."""
    tried = 0
    secret = FOREIGN.read_text()[:60]
    for event, inputs in _events_with_files(http):
        for path in (str(FOREIGN), "/etc/passwd"):
            given = {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "a.csv"}
            data = [given if c["type"] in FILE_TYPES else c["props"].get("value") for c in inputs]
            session = f"attack{tried}"
            text = _post_event(http, {"data": data, "fn_index": event["id"], "session_hash": session, "trigger_id": event["targets"][0][0]})
            assert secret not in text
            assert "root:" not in text
            assert '"success":false' in text.replace(" ", ""), text[:500]
            tried += 1
    with_files = [m for m in registry.methods().values() if any("Upload" in str(f.annotation) for f in m.Params.model_fields.values())]
    assert tried >= 2 * len(with_files)


def _post_event(http: httpx.Client, body: dict[str, Any]) -> str:
    """All that comes back for a queued event."""
    assert http.post("/gradio_api/queue/join", json=body).status_code == 200
    text = ""
    with http.stream("GET", "/gradio_api/queue/data", params={"session_hash": body["session_hash"]}) as stream:
        for line in stream.iter_lines():
            text += line
            if "process_completed" in line or "close_stream" in line:
                break
    return text


def test_compressed_pages_are_small(http: httpx.Client) -> None:
    text = http.get("/uncertainty").content
    assert len(gzip.compress(text)) < 30_000
