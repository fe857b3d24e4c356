/* The metric strip: one figure each, with its unit, the good direction and the figure that a claim states. */
import { formatValue, h, setText } from "./dom.js";

const DIRECTION = { higher: ["\u2191", "higher is better"], lower: ["\u2193", "lower is better"], target: ["\u25ce", "a target is best"] };

export class Metrics {
  constructor() {
    this.items = new Map();
    this.element = h("dl", { class: "pp-metrics", hidden: true });
  }

  /** Takes [{name, label, value, unit, better, meaning, stated, kind}]; figures change in place. */
  update(metrics) {
    this.element.hidden = metrics.length === 0;
    const names = new Set(metrics.map((metric) => metric.name));
    for (const [name, item] of this.items) {
      if (names.has(name)) continue;
      item.element.remove();
      this.items.delete(name);
    }
    for (const [index, metric] of metrics.entries()) {
      if (!this.items.has(metric.name)) this.items.set(metric.name, this.add(metric));
      const { value, stated, element } = this.items.get(metric.name);
      setText(value, formatValue(metric.value));
      value.classList.toggle("pp-metric-word", typeof metric.value !== "number");
      stated.hidden = metric.stated === null || metric.stated === undefined;
      setText(stated, `stated ${metric.stated}`);
      const there = this.element.children[index] ?? null; // a figure that comes later may stand earlier
      if (there !== element) this.element.insertBefore(element, there);
    }
  }

  add({ name, label, unit, better, meaning, kind }) {
    const term = h("dt", { text: label });
    const value = h("span", { class: "pp-metric-value" });
    const figure = h("dd", {}, value);
    if (DIRECTION[better]) {
      const [sign, words] = DIRECTION[better];
      const arrow = [h("span", { text: sign, "aria-hidden": "true" }), h("span", { class: "pp-hidden", text: words })];
      figure.append(h("span", { class: "pp-metric-better", title: words }, ...arrow));
    }
    const stated = h("span", { hidden: true });
    const words = [unit, kind === "measured" ? "measured here" : ""].filter(Boolean);
    const small = h("dd", { class: "pp-metric-small" }, ...words.map((text) => h("span", { text })), stated);
    return { element: h("div", { class: "pp-metric", "data-metric": name, title: meaning }, term, figure, small), value, stated };
  }
}
