"""Gradio's Blocks as the lab uses them: what is remembered for all visitors stays each visitor's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gradio as gr
import pytest
from gradio.blocks import BlocksConfig
from gradio.state_holder import SessionState

from app import shell
from app.blocks import KeptConfig, LabBlocks
from backends.runner import Runner


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabBlocks]:
    folder: Path = tmp_path_factory.mktemp("cache")
    runner = Runner(folder=folder)
    yield shell.build(runner)
    runner.close()


def a_slider(demo: LabBlocks) -> int:
    return next(i for i, b in demo.blocks.items() if isinstance(b, gr.HTML) and (b.elem_id or "").endswith("--alpha"))


def test_a_visitors_entries_equal_what_gradio_makes(demo: LabBlocks) -> None:
    assert isinstance(demo.default_config, KeptConfig)
    visitor = SessionState(demo)
    for _id, block in demo.blocks.items():
        assert visitor.config_values[_id] == BlocksConfig.config_for_block(_id, [], block)


def test_what_one_visitor_changes_no_other_sees(demo: LabBlocks) -> None:
    slider = a_slider(demo)
    one, other = SessionState(demo), SessionState(demo)
    before = other.config_values[slider]["props"]["value"]
    one._update_value_in_config(slider, 0.25)
    assert one.config_values[slider]["props"]["value"] == 0.25
    assert other.config_values[slider]["props"]["value"] == before
    assert SessionState(demo).config_values[slider]["props"]["value"] == before


def test_a_component_replaced_for_a_visitor_gets_its_own_entry(demo: LabBlocks) -> None:
    slider = a_slider(demo)
    visitor = SessionState(demo)
    visitor[slider] = gr.HTML("replaced", render=False)
    visitor._update_config(slider)
    assert visitor.config_values[slider]["props"]["value"] == "replaced"
    assert SessionState(demo).config_values[slider]["props"]["value"] != "replaced"
