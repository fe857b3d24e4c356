"""The look of the lab for Gradio: one theme object, the stylesheet, the head of every page."""

from __future__ import annotations

from functools import cache

import gradio as gr
from gradio.themes.utils import fonts

from app.assets import STATIC, plotly_url, static_url

STYLES = ("tokens", "lab", "workbench", "panels", "gradio")  # in the order of the cascade


class SystemFont(fonts.Font):
    """A CSS font list that is already on the visitor's machine; nothing is fetched.

    Gradio quotes every name that it does not know as generic, which would turn ``system-ui`` into the name of
    a font that nobody has.
    """

    def __str__(self) -> str:
        return self.name


@cache
def css_text() -> str:
    """The whole stylesheet in the order of the cascade; icons by their versioned address.

    Gradio resets buttons, headings and tables below its own class, and after this sheet: nested under a selector
    that weighs as much as an id, every rule of the lab outranks those without a single ``!important``.
    """
    tokens, *rules = ((STATIC / "css" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)
    nested = ":is(html, #outranks-gradio) {\n" + "\n".join(rules) + "}\n"
    return (tokens + nested).replace("../icons/", static_url("icons/"))


HEAD = (
    '<meta name="color-scheme" content="light dark">'
    '<meta name="theme-color" content="#faf8f4" media="(prefers-color-scheme: light)">'
    '<meta name="theme-color" content="#141a22" media="(prefers-color-scheme: dark)">'
    f'<meta name="playable" data-plotly="{plotly_url()}">'
)


class LabTheme(gr.themes.Base):
    """A theme that carries the lab's stylesheet in /theme.css, which browsers keep (``css=`` would stand in every page's configuration)."""

    @property
    def custom_css(self) -> str:
        return css_text()

    @custom_css.setter
    def custom_css(self, _: str) -> None:
        """Gradio sets it to "" first. As an instance's own attribute it would also be written out as a CSS variable."""


def theme() -> gr.themes.Base:
    """Gradio's theme object tied to the tokens of static/css/tokens.css; light and dark read the same tokens."""
    sans = SystemFont("var(--sans)")
    mono = SystemFont("var(--mono)")
    base = LabTheme(
        primary_hue="slate", secondary_hue="slate", neutral_hue="slate", radius_size="sm", spacing_size="md", text_size="md", font=[sans], font_mono=[mono]
    )
    # A theme value and its dark twin are the same token: the token itself changes with the scheme.
    values = {
        "body_background_fill": "var(--ground)",
        "body_text_color": "var(--ink)",
        "body_text_color_subdued": "var(--muted)",
        "background_fill_primary": "var(--surface)",
        "background_fill_secondary": "var(--sunken)",
        "border_color_primary": "var(--line)",
        "border_color_accent": "var(--method)",
        "color_accent_soft": "var(--sunken)",
        "link_text_color": "var(--method)",
        "link_text_color_hover": "var(--method)",
        "link_text_color_active": "var(--method)",
        "link_text_color_visited": "var(--method)",
        "block_background_fill": "transparent",
        "block_border_width": "0px",
        "block_border_color": "transparent",
        "block_shadow": "none",
        "block_info_text_color": "var(--muted)",
        "block_label_background_fill": "transparent",
        "block_label_border_width": "0px",
        "block_label_text_color": "var(--muted)",
        "block_title_background_fill": "transparent",
        "block_title_border_width": "0px",
        "block_title_text_color": "var(--ink)",
        "panel_background_fill": "transparent",
        "panel_border_width": "0px",
        "input_background_fill": "var(--surface)",
        "input_background_fill_focus": "var(--surface)",
        "input_border_color": "var(--line)",
        "input_border_color_focus": "var(--method)",
        "input_border_width": "1px",
        "input_placeholder_color": "var(--muted)",
        "input_shadow": "none",
        "input_shadow_focus": "none",
        "checkbox_background_color": "var(--surface)",
        "checkbox_background_color_selected": "var(--method)",
        "checkbox_border_color": "var(--line)",
        "checkbox_border_color_focus": "var(--method)",
        "checkbox_border_color_selected": "var(--method)",
        "checkbox_label_background_fill": "transparent",
        "checkbox_label_background_fill_hover": "var(--sunken)",
        "checkbox_label_background_fill_selected": "transparent",
        "checkbox_label_border_color": "var(--line)",
        "checkbox_label_border_color_selected": "var(--method)",
        "checkbox_label_border_width": "1px",
        "checkbox_label_shadow": "none",
        "checkbox_label_text_color": "var(--ink)",
        "checkbox_label_text_color_selected": "var(--method)",
        "slider_color": "var(--method)",
        "button_primary_background_fill": "var(--method)",
        "button_primary_background_fill_hover": "var(--method)",
        "button_primary_border_color": "var(--method)",
        "button_primary_text_color": "var(--on-method)",
        "button_secondary_background_fill": "transparent",
        "button_secondary_background_fill_hover": "var(--sunken)",
        "button_secondary_border_color": "var(--line)",
        "button_secondary_text_color": "var(--ink)",
        "error_background_fill": "var(--warning-ground)",
        "error_border_color": "var(--warning)",
        "error_text_color": "var(--ink)",
        "error_icon_color": "var(--warning)",
        "stat_background_fill": "var(--method)",
        "table_border_color": "var(--hairline)",
        "table_even_background_fill": "transparent",
        "table_odd_background_fill": "transparent",
        "table_text_color": "var(--ink)",
        "code_background_fill": "var(--sunken)",
        "shadow_drop": "none",
        "shadow_drop_lg": "var(--shadow)",
        "loader_color": "var(--method)",
    }
    dark = {f"{name}_dark": value for name, value in values.items() if hasattr(base, f"{name}_dark")}
    return base.set(color_accent="var(--method)", **values, **dark)
