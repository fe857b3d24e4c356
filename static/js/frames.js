/* Play, pause and a slider for figures that carry Plotly frames. */
import { button, h, icon, setText } from "./dom.js";
import { plotly } from "./plot.js";
import { reducedMotion } from "./tokens.js";

const STEP_MS = 120;

export class FramePlayer {
  /** Controls for the figure in `plot` (a LivePlot); `element` goes beneath it. */
  constructor(plot) {
    this.plot = plot;
    this.names = [];
    this.timer = null;
    this.playIcon = icon("run");
    this.button = button("pp-quiet", () => this.toggle(), { "aria-label": "Play" }, this.playIcon);
    const on = { input: () => this.show(Number(this.slider.value)) };
    this.slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Step of the animation", on });
    this.label = h("output", { class: "pp-frame-name" });
    this.element = h("div", { class: "pp-frames", hidden: true }, this.button, this.slider, this.label);
  }

  /** Takes the frames of the newest figure; the figure itself shows the last of them. */
  update(frames) {
    const names = (frames ?? []).map((frame) => String(frame.name));
    this.element.hidden = names.length < 2;
    if (names.join() === this.names.join()) return;
    this.stop();
    this.names = names;
    this.slider.max = names.length - 1;
    this.slider.value = names.length - 1;
    this.describe();
  }

  describe() {
    const name = this.names[this.slider.value] ?? "";
    setText(this.label, name);
    this.slider.setAttribute("aria-valuetext", name);
  }

  async show(index) {
    const library = await plotly();
    this.slider.value = index;
    this.describe();
    const step = { mode: "immediate", frame: { duration: 0, redraw: true }, transition: { duration: reducedMotion() ? 0 : STEP_MS / 2 } };
    await library.animate(this.plot.node, [this.names[index]], step);
  }

  toggle() {
    if (this.timer) return this.stop();
    const first = Number(this.slider.value) >= this.names.length - 1 ? 0 : Number(this.slider.value) + 1;
    this.playIcon.className = "pp-icon pp-icon-pause";
    this.button.setAttribute("aria-label", "Pause");
    return this.step(first);
  }

  async step(index) {
    if (index >= this.names.length) return this.stop();
    this.timer = setTimeout(() => this.step(index + 1), STEP_MS);
    return this.show(index);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.playIcon.className = "pp-icon pp-icon-run";
    this.button.setAttribute("aria-label", "Play");
  }
}
