/*
 * Colours and type of the stylesheet, for Plotly and canvas. A figure's JSON names colours by token
 * ("$method", "$peer-1/0.4"); they are resolved against the element that shows the figure, so that a theme's
 * hue and the light or dark scheme come from the stylesheet alone.
 */
const TOKEN = /^\$([a-z][a-z0-9-]*)(?:\/([01]?\.?\d+))?$/;
const LONG = 16; // longer arrays that begin with a number hold numbers only: they are not searched
const listeners = new Set();

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** The value of a CSS custom property at `node`. */
export function token(node, name) {
  return getComputedStyle(node).getPropertyValue(`--${name}`).trim();
}

function withAlpha(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

/** A function that turns "$name" or "$name/alpha" into a CSS colour at `node`; unknown names become the ink. */
export function colours(node) {
  const style = getComputedStyle(node);
  const seen = new Map();
  return (text) => {
    if (seen.has(text)) return seen.get(text);
    const match = TOKEN.exec(text);
    let colour = text;
    if (match) {
      const hex = style.getPropertyValue(`--${match[1]}`).trim() || style.getPropertyValue("--ink").trim();
      colour = match[2] === undefined ? hex : withAlpha(hex, Number(match[2]));
    }
    seen.set(text, colour);
    return colour;
  };
}

/** A copy of a piece of figure JSON with every colour token resolved; numbers and typed arrays are not copied. */
export function resolve(value, colour) {
  if (typeof value === "string") return value.charCodeAt(0) === 36 ? colour(value) : value;
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) {
    if (value.length > LONG && typeof value[0] === "number") return value;
    return value.map((item) => resolve(item, colour));
  }
  if (value.bdata !== undefined) return value;
  const copy = {};
  for (const key in value) copy[key] = resolve(value[key], colour);
  return copy;
}

/** The Plotly template made from the stylesheet's tokens at `node`, for plots of this width in pixels. */
export function plotTemplate(node, width_px) {
  const colour = colours(node);
  const small = width_px < 520;
  const ink = colour("$ink");
  const muted = colour("$muted");
  const grid = colour("$grid");
  const font = { family: token(node, "sans"), size: small ? 11 : 13, color: ink };
  const axis = {
    gridcolor: grid,
    zerolinecolor: colour("$line"),
    zerolinewidth: 1,
    linecolor: colour("$line"),
    showline: true,
    ticks: "outside",
    ticklen: 4,
    tickcolor: colour("$line"),
    tickfont: { color: muted, size: small ? 10 : 12 },
    title: { font: { color: ink, size: small ? 11 : 13 }, standoff: 8 },
    automargin: true,
    hoverformat: ".4~g",
  };
  const scene = { ...axis, showbackground: false, spikecolor: muted };
  return {
    layout: {
      font,
      colorway: ["$method", "$peer-1", "$peer-2", "$peer-3", "$truth", "$warning"].map(colour),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: small ? { l: 44, r: 8, t: 8, b: 40 } : { l: 56, r: 16, t: 12, b: 48 },
      xaxis: axis,
      yaxis: axis,
      scene: { xaxis: scene, yaxis: scene, zaxis: scene },
      polar: { bgcolor: "rgba(0,0,0,0)", radialaxis: axis, angularaxis: axis },
      ternary: { bgcolor: "rgba(0,0,0,0)", aaxis: axis, baxis: axis, caxis: axis },
      legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom", bgcolor: "rgba(0,0,0,0)", font: { color: ink } },
      hoverlabel: { bgcolor: colour("$surface"), bordercolor: colour("$line"), font: { ...font, size: 12 } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: colour("$method") },
      colorscale: {
        sequential: [[0, colour("$surface")], [1, colour("$method")]],
        diverging: [[0, colour("$warning")], [0.5, colour("$surface")], [1, colour("$method")]],
      },
      coloraxis: { colorbar: { outlinewidth: 0, thickness: 10, tickfont: { color: muted } } },
      annotationdefaults: { font: { color: ink, size: 12 }, arrowcolor: muted, arrowwidth: 1 },
      // A finger on a plot has to scroll the page; zooming stays one button away.
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    },
  };
}

/** Calls `listener` when light turns dark, dark turns light, or the contrast setting changes. */
export function onThemeChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const announce = () => listeners.forEach((listener) => listener());
new MutationObserver(announce).observe(document.body, { attributes: true, attributeFilter: ["class"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announce);
matchMedia("(prefers-contrast: more)").addEventListener("change", announce);
