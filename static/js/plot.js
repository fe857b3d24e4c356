/*
 * LivePlot: a Plotly figure whose node stays while frames stream in.
 *
 * Drawing is rationed for the whole page: one figure a frame, newest value only, never off screen, and after a
 * drawing that kept the main thread busy for t the next waits as long. Otherwise three plots at ten frames a
 * second keep the thread busy for most of each second and the Stop button answers late.
 */
import { colours, onThemeChange, plotTemplate, reducedMotion, resolve } from "./tokens.js";

const NARROW_PX = 560;
const PAUSE_LIMIT_MS = 1_000;
const GESTURE_MS = 800; // runs that follow each other faster belong to one drag: they share the ghost from before it
const waiting = new Set();
let busy = false;
let freeAt = 0;
let library;

/** The library, fetched from this server the first time a figure is drawn. */
export function plotly() {
  library ??= new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = document.documentElement.dataset.plotly ?? document.querySelector("[data-plotly]").dataset.plotly;
    script.onload = () => done(window.Plotly);
    script.onerror = () => {
      library = undefined; // so that the next frame tries again
      fail(new Error("The plotting library did not load; check the connection."));
    };
    document.head.append(script);
  });
  return library;
}

/** Resolves after the browser has laid out and painted what was changed in this frame. */
function painted() {
  return new Promise((done) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done();
    channel.port2.postMessage(null);
  });
}

function pump() {
  if (busy) return;
  const plot = [...waiting].find((candidate) => candidate.drawable);
  if (!plot) return;
  busy = true;
  setTimeout(() => requestAnimationFrame(() => drawNext(plot)), Math.max(0, freeAt - performance.now()));
}

async function drawNext(plot) {
  waiting.delete(plot);
  try {
    await plotly(); // the wait for the library is no work of the main thread
    const first = plot.drawn === null;
    const start = performance.now();
    if (plot.drawable) await plot.draw();
    await painted();
    // A first drawing is slow and comes once: the pictures of a page follow each other without a pause.
    freeAt = first ? 0 : performance.now() + Math.min(performance.now() - start, PAUSE_LIMIT_MS);
  } catch (error) {
    console.error(error);
  } finally {
    busy = false;
    pump();
  }
}

const watchSight = new IntersectionObserver((entries) => {
  for (const entry of entries) entry.target.livePlot.inSight = entry.isIntersecting;
  pump();
}, { rootMargin: "100px" });

const watchSize = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.livePlot.onResize();
});

/** What a figure wants to be laid out differently on a narrow screen stands in its ``meta.narrow``. */
function narrowed(layout) {
  const merged = Object.entries(layout.meta?.narrow ?? {}).map(([name, value]) => [name, Array.isArray(value) ? value : { ...layout[name], ...value }]);
  return { ...layout, ...Object.fromEntries(merged) };
}

export class LivePlot {
  /** Draws into `node`; `send(event)` is told of clicks and drags as {type, ...}. */
  constructor(node, send) {
    this.node = node;
    this.send = send;
    this.figure = null;
    this.run = null;
    this.runSince = 0;
    this.castable = []; // the newest traces that may stay behind
    this.ghosts = []; // those that did
    this.inSight = false;
    this.held = false;
    this.drawn = null; // size and revision of what is on screen
    this.revision = 0;
    node.livePlot = this;
    watchSight.observe(node);
    watchSize.observe(node);
    this.forgetTheme = onThemeChange(() => this.request());
    // A new figure in the middle of a drag would pull the shape out of the person's hand.
    node.addEventListener("pointerdown", () => {
      this.held = true;
      addEventListener("pointerup", () => setTimeout(() => this.release()), { once: true });
      addEventListener("pointercancel", () => this.release(), { once: true });
    }, true);
  }

  get drawable() {
    return this.figure !== null && this.inSight && !this.held && this.node.clientWidth > 0;
  }

  get hasGhost() {
    return this.ghosts.length > 0;
  }

  /** Takes the newest figure {data, layout, frames?} of this run. */
  update(figure, run) {
    const now = performance.now();
    if (run !== this.run) {
      if (now - this.runSince > GESTURE_MS) this.ghosts = this.castable;
      this.run = run;
      this.runSince = now;
    }
    this.figure = figure;
    const castable = figure.data.filter((trace) => trace.meta?.ghost);
    if (castable.length) this.castable = castable; // the first frames of a run may not have them yet
    this.request();
  }

  clearGhost() {
    this.ghosts = [];
    this.request();
  }

  request() {
    if (!this.figure) return;
    waiting.add(this);
    pump();
  }

  release() {
    this.held = false;
    pump();
  }

  onResize() {
    const { clientWidth: width, clientHeight: height } = this.node;
    if (width > 0 && (this.drawn?.width !== width || this.drawn?.height !== height)) this.request();
  }

  ghostTraces(colour) {
    return this.ghosts.map((trace) => ({
      ...resolve(trace, colour),
      opacity: 0.25,
      showlegend: false,
      hoverinfo: "skip",
      hovertemplate: null,
      uid: `ghost-${trace.name}`,
      ...(trace.type === undefined || trace.type === "scatter" ? { zorder: -1 } : {}),
    }));
  }

  async draw() {
    const colour = colours(this.node);
    const { clientWidth: width, clientHeight: height } = this.node;
    const { data, layout, frames } = resolve(this.figure, colour);
    const editable = layout.meta?.editable === true;
    this.revision += 1;
    const shown = {
      ...(width < NARROW_PX ? narrowed(layout) : layout),
      template: plotTemplate(this.node, width),
      width,
      height,
      autosize: false,
      uirevision: "kept",
      // Plotly does not see that a typed array of the same length holds other numbers.
      datarevision: this.revision,
      // What the server says about a dragged shape wins over what Plotly remembers of the drag.
      editrevision: this.revision,
    };
    if (reducedMotion()) delete shown.transition;
    const config = {
      displaylogo: false,
      displayModeBar: width < NARROW_PX ? false : "hover", // on a narrow plot it would cover the key
      showTips: false,
      doubleClick: "reset",
      modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetCameraLastSave3d"],
      edits: { shapePosition: editable },
    };
    await window.Plotly.react(this.node, { data: [...data, ...this.ghostTraces(colour)], layout: shown, config, frames });
    this.drawn = { width, height };
    if (!this.listening) this.listen();
  }

  listen() {
    this.listening = true;
    this.node.on("plotly_click", ({ points: [point] }) => {
      if (point.curveNumber >= this.figure.data.length) return; // a ghost
      const event = { type: "click", trace: point.data.name ?? null, curveNumber: point.curveNumber, x: point.x, y: point.y };
      if (point.z !== undefined) event.z = point.z;
      this.send({ ...event, pointNumber: point.pointNumber ?? null, customdata: point.customdata ?? null });
    });
    this.node.on("plotly_relayout", (change) => {
      const moved = new Map();
      for (const [key, value] of Object.entries(change)) {
        const match = /^shapes\[(\d+)\]\.([xy][01])$/.exec(key);
        if (match) moved.set(match[1], { ...moved.get(match[1]), [match[2]]: value });
      }
      for (const [index, ends] of moved) {
        const { x0, x1, y0, y1, name } = this.node.layout.shapes[index];
        this.send({ type: "drag", index: Number(index), shape: name ?? null, x0, x1, y0, y1, ...ends });
      }
    });
  }

  /** Saves what is shown as "png" or "svg". */
  async save(format, filename) {
    const library = await plotly();
    const { clientWidth: width, clientHeight: height } = this.node;
    // On screen the ground shines through; a file needs its own.
    const ground = colours(this.node)("$surface");
    const picture = { data: this.node.data, layout: { ...this.node.layout, paper_bgcolor: ground, plot_bgcolor: ground } };
    await library.downloadImage(picture, { format, width, height, scale: format === "png" ? 2 : 1, filename });
  }

  destroy() {
    waiting.delete(this);
    watchSight.unobserve(this.node);
    watchSize.unobserve(this.node);
    this.forgetTheme();
    window.Plotly?.purge(this.node);
  }
}
