/* A bounded number on a linear or a log scale, with the true value in a field beside it and words as chips. */
import { button, eachFrame, h, parse } from "./dom.js";

const STEPS = 400; // positions of a log slider

export function mount(root, link, meta) {
  return new Range(root, link, meta);
}

class Range {
  constructor(root, link, meta) {
    this.root = root;
    this.link = link;
    this.meta = meta;
    [this.lo, this.hi] = meta.slider ?? [meta.min, meta.max];
    this.build();
    this.sendInput = eachFrame(() => this.link.send("input", { value: this.value }));
    this.update(link.value);
    // A teacher's hand-out can hold a control: Gradio then gives the component this class.
    const component = root.parentElement.closest(".pp-control") ?? root;
    const hold = () => [this.slider, this.number, ...this.chips].forEach((input) => (input.disabled = component.classList.contains("pp-pinned")));
    new MutationObserver(hold).observe(component, { attributes: true, attributeFilter: ["class"] });
    hold();
  }

  build() {
    const { id, label, unit, help, log, integer, step, words = [], min, max } = this.meta;
    const name = h("label", { for: `${id}-number`, class: "pp-range-label" }, h("span", { text: label }));
    if (unit) name.append(h("span", { class: "pp-unit", text: unit }));
    const span = log ? { min: 0, max: STEPS, step: 1 } : { min: this.lo, max: this.hi, step: integer ? Math.max(1, step ?? 1) : (step ?? "any") };
    const moved = { input: () => this.slide(), change: () => this.link.send("change", { value: this.value }) };
    this.slider = h("input", { type: "range", id: `${id}-slider`, "aria-label": unit ? `${label}, ${unit}` : label, ...span, on: moved });
    const typed = { min, max, step: integer ? 1 : "any", inputmode: integer ? "numeric" : "decimal", on: { change: () => this.type() } };
    this.number = h("input", { type: "number", id: `${id}-number`, class: "pp-range-number", "aria-describedby": help ? `${id}-help` : null, ...typed });
    this.chips = words.map((word) => button("pp-chip pp-chip-word", () => this.choose(word), { "data-word": word, "aria-pressed": "false", text: word }));
    this.fault = h("p", { class: "pp-error", role: "alert", hidden: true });
    const parts = [h("div", { class: "pp-range-head" }, name, this.number), this.slider];
    if (words.length) parts.splice(1, 0, h("div", { class: "pp-range-words", role: "group", "aria-label": `${label}: words` }, ...this.chips));
    if (help) parts.push(h("p", { class: "pp-help", id: `${id}-help`, text: help }));
    this.root.replaceChildren(...parts, this.fault);
  }

  /** Shows a value that came from outside; nothing is sent back. */
  update(raw) {
    const value = this.read(raw);
    if (value === undefined || value === this.value) return;
    this.show(value);
  }

  read(raw) {
    if (raw === null || raw === undefined || raw === "") return this.meta.default ?? undefined;
    if (typeof raw !== "string" || this.meta.words?.includes(raw)) return raw;
    return parse(raw);
  }

  show(value) {
    this.value = value;
    const word = typeof value === "string";
    this.root.classList.toggle("pp-range-worded", word);
    this.number.value = word ? "" : value;
    this.number.placeholder = word ? value : "";
    if (!word) this.slider.value = this.position(value);
    this.slider.style.setProperty("--fill", `${100 * this.share()}%`);
    this.slider.setAttribute("aria-valuetext", word ? value : `${value}${this.meta.unit ? ` ${this.meta.unit}` : ""}`);
    for (const chip of this.chips) chip.setAttribute("aria-pressed", String(chip.dataset.word === value));
    this.complain("");
  }

  share() {
    return (Number(this.slider.value) - Number(this.slider.min)) / (Number(this.slider.max) - Number(this.slider.min));
  }

  position(value) {
    if (!this.meta.log) return value;
    const share = Math.log(Math.max(value, this.lo) / this.lo) / Math.log(this.hi / this.lo);
    return Math.round(STEPS * Math.min(1, share));
  }

  valueAt(position) {
    if (!this.meta.log) return position;
    const value = this.lo * (this.hi / this.lo) ** (position / STEPS);
    return this.meta.integer ? Math.round(value) : Number(value.toPrecision(3));
  }

  slide() {
    this.set(this.valueAt(Number(this.slider.value)));
    this.sendInput();
  }

  type() {
    const { min, max, integer } = this.meta;
    const value = this.number.valueAsNumber;
    if (this.number.value === "" && this.number.validity.valid && typeof this.value === "string") return;
    const below = min !== null && min !== undefined && value < min;
    const above = max !== null && max !== undefined && value > max;
    if (Number.isNaN(value) || below || above || (integer && !Number.isInteger(value))) {
      this.complain(`choose a ${integer ? "whole " : ""}number from ${min} to ${max}`);
      return;
    }
    this.set(value);
    this.link.send("input", { value });
    this.link.send("change", { value });
  }

  choose(word) {
    this.set(word);
    this.link.send("input", { value: word });
    this.link.send("change", { value: word });
  }

  set(value) {
    this.show(value);
    this.link.value = value;
  }

  complain(text) {
    this.fault.textContent = text;
    this.fault.hidden = !text;
    if (text) this.number.setAttribute("aria-invalid", "true");
    else if (this.fault.previousText) this.number.removeAttribute("aria-invalid");
    this.fault.previousText = text;
  }
}
