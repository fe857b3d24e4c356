/* Stands in for Gradio: components with a value, watchers and recorded events, and figures to show in them. */
const components = {};

/** A component as gr.HTML makes it; `components[name]` has set(value), value, events. */
function component(name, kind, meta, parent, value = "") {
  const element = document.createElement("div");
  element.className = "pp-control";
  element.id = meta.id ?? `${meta.slug}-${kind}`;
  element.innerHTML = `<div class="pp-${kind}"></div>`;
  element.firstChild.dataset.meta = JSON.stringify(meta);
  document.querySelector(parent).append(element);
  const watchers = [];
  const made = { element, events: [], props: { value } };
  made.api = { props: made.props, trigger: (name, payload) => made.events.push({ sent: name, ...payload }), watch: (_, callback) => watchers.push(callback) };
  made.set = (next) => {
    made.props.value = typeof next === "object" ? JSON.stringify(next) : next;
    watchers.forEach((callback) => callback());
  };
  made.mount = () => Playable.mount(kind, element, made.api);
  components[name] = made;
  made.mount();
}

const grid = Array.from({ length: 120 }, (_, i) => i / 119);
const noise = (i) => Math.abs(Math.sin(i * 12.9898) * 43758.5453) % 1;

function bandFigure(tie = 0) {
  const mean = grid.map((x) => Math.sin(6 * x));
  const up = grid.map((x) => 0.3 + 0.9 * x);
  const down = grid.map((x, i) => (1 - tie) * (0.2 + 0.1 * x) + tie * up[i]);
  const upper = mean.map((m, i) => m + up[i]);
  const lower = mean.map((m, i) => m - down[i]);
  const px = Array.from({ length: 90 }, (_, i) => noise(i + 1));
  const py = px.map((x, i) => Math.sin(6 * x) + (noise(i + 200) < 0.5 ? noise(i + 400) * (0.3 + 0.9 * x) : -noise(i + 600) * 0.25));
  return {
    data: [
      { type: "scatter", mode: "lines", x: [...grid, ...[...grid].reverse()], y: [...upper, ...[...lower].reverse()], fill: "toself", fillcolor: "$method/0.16", line: { width: 0 }, name: "band", hoverinfo: "skip", meta: { ghost: true } },
      { type: "scatter", mode: "lines", x: grid, y: upper, name: "this band", line: { color: "$method", width: 2.5 }, meta: { ghost: true } },
      { type: "scatter", mode: "lines", x: grid, y: lower, showlegend: false, name: "lower edge", line: { color: "$method", width: 2.5 }, meta: { ghost: true } },
      { type: "scatter", mode: "lines", x: grid, y: mean, name: "truth", line: { color: "$truth", width: 1.5 } },
      { type: "scatter", mode: "lines", x: grid, y: mean.map((m) => m + 0.9), name: "constant width", line: { color: "$peer-1", dash: "dash", width: 1.5 } },
      { type: "scatter", mode: "markers", x: px, y: py, name: "data", marker: { color: "$data", size: 5 } },
      { type: "scatter", mode: "markers", x: [0.3, 0.72], y: [1.9, -1.5], name: "missed", marker: { color: "$warning", symbol: "triangle-up", size: 10 } },
    ],
    layout: { xaxis: { title: { text: "x (standardised)" }, range: [0, 1] }, yaxis: { title: { text: "target y (standard deviations)" }, range: [-2.2, 2.4] } },
  };
}

function lineFigure(title, unit, layout = {}) {
  return {
    data: [
      { type: "scatter", mode: "lines+markers", x: grid.filter((_, i) => i % 8 === 0), y: grid.filter((_, i) => i % 8 === 0).map((x) => Math.exp(-4 * x)), name: "this method", marker: { color: "$method" }, line: { color: "$method" } },
      { type: "scatter", mode: "lines", x: grid, y: { dtype: "f8", bdata: btoa(String.fromCharCode(...new Uint8Array(Float64Array.from(grid, (x) => 0.5 * Math.exp(-2 * x)).buffer))) }, name: "peer", line: { color: "$peer-2", dash: "dot" } },
    ],
    layout: { xaxis: { title: { text: "iteration" } }, yaxis: { title: { text: `${title} (${unit})` } }, ...layout },
  };
}

function heatFigure() {
  const z = Array.from({ length: 24 }, (_, i) => Array.from({ length: 24 }, (_, j) => Math.exp(-((i - j) ** 2) / 40)));
  return { data: [{ type: "heatmap", z, colorscale: [[0, "$surface"], [1, "$method"]], colorbar: { title: { text: "kernel" } } }], layout: { xaxis: { title: { text: "row i" } }, yaxis: { title: { text: "row j" } } } };
}

function framesFigure() {
  const wave = (k) => grid.map((x) => Math.sin(6 * x + k / 3));
  const frames = Array.from({ length: 8 }, (_, k) => ({ name: `step ${k}`, data: [{ x: grid, y: wave(k) }] }));
  return { data: [{ type: "scatter", mode: "lines", x: grid, y: wave(7), line: { color: "$method" }, name: "flow" }], layout: { xaxis: { title: { text: "x" } }, yaxis: { title: { text: "height (m)" }, range: [-1.2, 1.2] } }, frames };
}

const editable = { meta: { editable: true }, shapes: [{ type: "line", name: "threshold", x0: 0.2, x1: 0.8, y0: 0.5, y1: 0.5, xref: "paper", line: { color: "$warning", width: 3 } }] };
const picture = (hue) => `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 320 200"><rect width="320" height="200" fill="hsl(${hue} 30% 45%)"/><circle cx="160" cy="100" r="60" fill="hsl(${hue} 40% 70%)"/></svg>`)}`;

const figure = (name, title, made, span = "half") => ({ name, kind: "figure", title, span, summary: `${title}: what the picture shows, in one sentence for those who cannot see it.`, figure: made });
const panel = (name, kind, data, span = "half") => ({ name, kind: "panel", panel: kind, title: name, span, summary: "", data });

const PANELS = [
  panel("tokens", "tokens", { tokens: [{ text: "The", value: 0.05 }, { text: " cat", value: 0.9, selected: true }, { text: " sat", value: 0.4 }, { text: " down", value: 0.2, struck: true }, { text: "<b>.", value: 1, color: "$warning" }], legend: "Tint: attention to the first token, 0 to 1" }, "wide"),
  panel("chat", "chat", { turns: [{ who: "lab", text: "Which of the two plans do you like better?" }, { who: "person", text: "The shorter one" }], options: [{ id: "a", text: "Plan A" }, { id: "b", text: "Plan B" }], prompt: "And of these?" }),
  panel("chips", "chips", { groups: [{ title: "Features", chips: [{ id: "age", text: "age", pressed: true }, { id: "bmi", text: "body mass index" }, { id: "sex", text: "sex", disabled: true }] }] }),
  panel("diff", "diff", { before: "def f(x):\n    y = x + 1\n    return y", after: "def f(x):\n    return x + 1", language: "python" }),
  panel("table", "table", { columns: [{ name: "name", kind: "text" }, { name: "weight (kg)", kind: "number", editable: true }, { name: "used", kind: "bool", editable: true }], rows: [["first", 1.5, true], ["second", 2.25, false]], note: "Weights can be edited." }),
  panel("images", "images", { images: [{ src: picture(200), title: "before", caption: "as given", overlay: picture(20) }, { src: picture(120), title: "after", caption: "as made" }] }, "wide"),
];

const METRICS = [
  { name: "coverage", label: "Coverage", value: 0.9012, unit: "", better: "target", meaning: "Share of test points inside the band", stated: "0.90", kind: "exact" },
  { name: "mean_width", label: "Mean width", value: 1.32456, unit: "sd", better: "lower", meaning: "Mean width of the band on the test points", stated: null, kind: "exact" },
  { name: "symmetry_chosen", label: "Symmetry chosen", value: "separate", unit: "", better: null, meaning: "Penalty that the data asked for", stated: null, kind: "exact" },
  { name: "gap", label: "Duality gap", value: 4.1e-7, unit: "", better: "lower", meaning: "Relative", stated: null, kind: "exact" },
  { name: "undefined", label: "Miss below", value: null, unit: "", better: "lower", meaning: "Nothing was missed", stated: null, kind: "exact" },
  { name: "seconds", label: "Time", value: 9.83, unit: "s", better: "lower", meaning: "Wall time", stated: null, kind: "measured" },
];

function stageValue(run, tie = 0) {
  return {
    run, progress: 1,
    views: [
      figure("band", "The band", bandFigure(tie), "main"),
      figure("gap", "Duality gap", lineFigure("gap", "relative", editable)),
      figure("kernel", "Kernel matrix", heatFigure()),
      figure("flow", "Flow in time", framesFigure(), "wide"),
      ...PANELS,
    ],
    metrics: METRICS,
    ran: { model: "kernel ridge", data: "split-normal", size: "300 rows", device: "cpu", seconds: 9.8, seed: 0, version: "1.0" },
    notes: ["The calibration set is small: the band is wider than it needs to be."],
  };
}

const barValue = (more) => ({ state: "idle", place: null, progress: 0, message: "", source: "live", run: null, stamp: null, query: "", href: "/m/demo", error: null, note: null, ...more });

component("symmetry", "range", { id: "demo--symmetry", label: "Symmetry", unit: "", min: 0, max: 1e6, slider: [1e-3, 1e3], log: true, integer: false, words: ["auto", "separate", "symmetric"], help: "Ties the upper and the lower width together.", default: "auto" }, ".pp-controls", "auto");
component("alpha", "range", { id: "demo--alpha", label: "Miss rate", unit: "share", min: 0.01, max: 0.3, log: false, integer: false, step: 0.01, words: [], help: "", default: 0.1 }, ".pp-controls", 0.1);
component("rows", "range", { id: "demo--rows", label: "Rows", unit: "count", min: 20, max: 2000, log: true, integer: true, words: [], help: "", default: 300 }, ".pp-controls", 300);
component("bar", "bar", { slug: "demo", seconds: 9, live: ["symmetry"], presets: [{ name: "skewed", title: "Skewed noise", seconds: 9.4, fails: false }, { name: "engel", title: "Engel food data", seconds: 4, fails: false }, { name: "tiny", title: "Nine points", seconds: 0.4, fails: true }], steps: [{ preset: "skewed", question: "Which side of the band wastes more width when the noise is skewed?" }, { preset: "tiny", question: "How many calibration points does 90 % need?" }] }, ".pp-main");
component("stage", "stage", { slug: "demo", theme: "uncertainty" }, ".pp-main");
component("drawer", "drawer", { slug: "demo", tabs: [{ id: "how", title: "How it works" }, { id: "exercise", title: "Exercise" }, { id: "claims", title: "Claims" }, { id: "code", title: "Code" }, { id: "data", title: "Data" }] }, ".pp-main");
