/* The run bar: one button that runs and stops, progress, presets, the guided exercise, the link. */
import { button, copyText, formatSeconds, h, icon, ordinal, parse, publish, rovingFocus, setText, subscribe } from "./dom.js";
import { clearError, showError } from "./errors.js";
import { remember, unfinished } from "./unfinished.js";

const ACTIVE = new Set(["queued", "running", "paused"]);
const SETTLE_MS = 150; // a live run ends sooner: the button does not flicker while a slider is dragged
const SILENCE_MS = 20_000; // a run gives a sign of life each second
const ANSWER_MS = 4_000;
const KEPT_IN_ADDRESS = ["_hide", "_pin", "__theme"]; // a teacher's hand-out and the colour scheme outlive a run
const SPOKEN = { queued: "Waiting", running: "Running", paused: "Paused", done: "Done", failed: "Failed", cancelled: "Stopped" };

export function mount(root, link, meta) {
  return new Bar(root, link, meta);
}

/** A button that stays hidden until the bar's value calls for it. */
function quiet(name, click, ...children) {
  return button(`pp-quiet ${name}`, click, { hidden: true }, ...children);
}

class Bar {
  constructor(root, link, meta) {
    this.root = root;
    this.link = link;
    this.meta = meta;
    this.value = { state: "idle", progress: 0, message: "" };
    this.restored = false; // the controls show what the address says
    this.idle = true; // nothing ran here yet: a stored run may be shown
    this.stored = null;
    this.heardAt = performance.now();
    this.doubtful = false;
    this.build();
    subscribe("playable:stored", meta.slug, root, ({ bar }) => {
      this.stored = bar;
      if (this.idle) this.show({ ...bar, note: this.value.note ?? bar.note });
    });
    subscribe("playable:preset", meta.slug, root, ({ wanted }) => this.ask("preset", wanted));
    this.listen();
    this.show(this.value);
    const query = unfinished(meta.slug);
    if (this.asked) this.press();
    else if (query !== null) this.ask("preset", { query });
  }

  build() {
    const { presets = [], steps = [], slug } = this.meta;
    const keys = { "aria-keyshortcuts": "Control+Enter", title: "Control+Enter runs, Escape stops" };
    this.run = button("pp-run", () => this.press(), { "data-action": "run", text: "Run", ...keys });
    this.pause = quiet("pp-pause", () => this.togglePause(), "Pause");
    this.message = h("span", { class: "pp-message" });
    this.stamp = h("span", { class: "pp-stamp", hidden: true });
    this.again = quiet("pp-again", () => this.ask("run", { fresh: true }), "run again");
    this.copy = quiet("pp-copy", () => this.copyLink(), icon("link"), h("span", { text: "copy link" }));
    this.save = quiet("pp-copy", () => this.saveSettings(), icon("download"), h("span", { text: "save settings" }));
    this.address = h("input", { type: "text", class: "pp-address", readonly: true, hidden: true, "aria-label": "Link to this setting" });
    this.line = h("div", { class: "pp-progress", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, h("i"));
    this.alert = h("p", { class: "pp-alert", role: "alert" });
    this.note = h("p", { class: "pp-note", hidden: true });
    this.spoken = h("span", { class: "pp-hidden", role: "status" });
    this.chips = h("div", { class: "pp-presets", role: "group", "aria-label": "Presets" }, ...presets.map((preset) => this.presetChip(preset)));
    this.steps = h("div", { class: "pp-steps", role: "group", "aria-label": "Guided exercise" }, ...steps.map((step, index) => this.stepChip(step, index)));
    if (steps.length) this.steps.prepend(h("span", { class: "pp-steps-label", text: "Try it" }));
    this.card = h("div", { class: "pp-guide", hidden: true, id: `${slug}--guide` });
    this.controls = h("div", { class: "pp-bar-controls" }, this.run, this.pause, this.message, this.stamp, this.again, this.steps, this.copy, this.save);
    const early = this.root.querySelector(".pp-run"); // stands in the page's HTML, so that it is there at once
    const held = early !== null && early === document.activeElement;
    this.root.replaceChildren(this.controls, this.line, this.address, this.chips, this.card, this.alert, this.note, this.spoken);
    if (held) this.run.focus();
    this.asked = early?.dataset.asked !== undefined;
    rovingFocus(this.chips, "button");
    rovingFocus(this.steps, "button");
  }

  presetChip({ name, title, seconds, fails }) {
    const style = `pp-chip${fails ? " pp-chip-fails" : ""}`;
    const chip = button(style, () => this.choosePreset(name), { "data-preset": name, "aria-pressed": "false" }, h("span", { text: title }));
    if (fails && !/fails/i.test(title)) chip.append(h("span", { class: "pp-chip-mark", text: "where it fails" }));
    chip.append(h("span", { class: "pp-chip-time", text: formatSeconds(seconds) }));
    return chip;
  }

  stepChip(step, index) {
    const role = { "aria-expanded": "false", "aria-controls": `${this.meta.slug}--guide`, "aria-label": `Exercise, step ${index + 1}` };
    return button("pp-chip pp-chip-step", () => this.openStep(index), { ...role, text: String(index + 1) });
  }

  choosePreset(name) {
    this.pressPreset(name);
    this.ask("preset", { name });
  }

  pressPreset(name) {
    for (const chip of this.chips.children) chip.setAttribute("aria-pressed", String(chip.dataset.preset === name));
  }

  /** The preset that a link's query stands for, null when a control was changed since. */
  presetOf(query) {
    const names = new URLSearchParams(query);
    for (const name of names.keys()) if (!name.startsWith("_")) return null;
    return names.get("_preset") ?? this.meta.presets[0]?.name;
  }

  openStep(index) {
    const { steps } = this.meta;
    const buttons = [...this.steps.querySelectorAll("button")];
    const closing = buttons[index].getAttribute("aria-expanded") === "true";
    buttons.forEach((button, at) => button.setAttribute("aria-expanded", String(!closing && at === index)));
    this.card.hidden = closing;
    if (closing) return;
    const { preset, question } = steps[index];
    const step = h("span", { class: "pp-guide-step", text: `Step ${index + 1} of ${steps.length}` });
    const go = button("pp-button", () => this.choosePreset(preset), { text: "Show me" });
    const next = index + 1 < steps.length ? button("pp-quiet", () => this.openStep(index + 1), { text: "next step" }) : null;
    this.card.replaceChildren(h("p", {}, step, h("span", { text: question })), h("div", { class: "pp-guide-row" }, go, next));
  }

  press() {
    if (ACTIVE.has(this.value.state)) this.ask("stop", {});
    else if (!this.restored && this.linked()) this.ask("preset", { query: location.search.slice(1) });
    else this.ask("run", { fresh: false });
  }

  /** Whether the address names params of this method: until the controls show them, Run goes by the address. */
  linked() {
    const named = new URLSearchParams(location.search);
    return named.get("_m") === this.meta.slug && [...named.keys()].some((name) => !name.startsWith("_") || name === "_preset" || name === "_z");
  }

  togglePause() {
    this.ask(this.value.state === "paused" ? "resume" : "pause", {});
  }

  /** Sends an event and says so at once; when nothing comes back, the line returns to what it was. */
  ask(name, payload) {
    if (name === "run" || name === "preset") {
      clearError(this.meta.slug);
      publish("playable:asked", { slug: this.meta.slug }, { keep: false });
    }
    const words = { run: "Starting", preset: "Starting", stop: "Stopping", pause: "Pausing", resume: "Continuing" };
    setText(this.message, words[name]);
    clearTimeout(this.unanswered);
    this.unanswered = setTimeout(() => setText(this.message, this.describe()), ANSWER_MS);
    this.link.send(name, payload);
  }

  update(raw) {
    const value = parse(raw);
    if (!value) return;
    this.restored = true;
    this.idle = value.state === "idle" && !value.run;
    // A page opened by a link may have something to say about the link: the stored run beside it stays marked.
    this.show(this.idle && this.stored ? { ...this.stored, note: value.note } : value);
  }

  show(value) {
    const before = this.value;
    this.value = value;
    this.heardAt = performance.now();
    this.doubtful = false;
    clearTimeout(this.unanswered);
    this.showButton();
    const active = ACTIVE.has(value.state);
    this.root.dataset.state = value.state;
    this.pause.hidden = value.state !== "running" && value.state !== "paused";
    setText(this.pause, value.state === "paused" ? "Continue" : "Pause");
    setText(this.message, this.describe());
    const percent = Math.round(100 * (value.progress ?? 0));
    this.line.setAttribute("aria-valuenow", percent);
    this.line.firstChild.style.transform = `scaleX(${active ? percent / 100 : 0})`;
    this.showSource(active);
    this.showProblem();
    this.copy.hidden = !value.href || Boolean(value.settings);
    this.save.hidden = !value.settings;
    if (before.state !== value.state) setText(this.spoken, SPOKEN[value.state] ?? "");
    if (value.query !== undefined && value.query !== before.query) {
      this.writeAddress();
      this.pressPreset(this.presetOf(value.query));
    }
    if (value.run && !value.run.startsWith("live-")) remember(this.meta.slug, active && !value.settings ? (value.query ?? "") : null);
    if (value.run && (before.run !== value.run || before.query !== value.query || before.state !== value.state)) {
      publish("playable:run", { slug: this.meta.slug, run: value.run, query: value.query ?? "", state: value.state }, { keep: true });
    }
  }

  showButton() {
    clearTimeout(this.settling);
    const active = ACTIVE.has(this.value.state);
    const label = () => {
      setText(this.run, active ? "Stop" : "Run");
      this.run.dataset.action = active ? "stop" : "run";
    };
    if (this.value.state === "running" && this.run.dataset.action === "run") this.settling = setTimeout(label, SETTLE_MS);
    else label();
  }

  describe() {
    const { state, place, message, error } = this.value;
    if (error) return ""; // the line below says it
    if (state === "queued") return place ? `${ordinal(place)} in line` : "Waiting for a place";
    if (state === "idle" && !message && this.meta.seconds) return `about ${formatSeconds(this.meta.seconds)}`;
    if (state === "paused") return "Paused";
    if (state === "cancelled") return message || "Stopped";
    return message ?? "";
  }

  showSource(active) {
    const { source, stamp } = this.value;
    this.stamp.hidden = !stamp;
    setText(this.stamp, stamp ?? "");
    this.again.hidden = active || source !== "cache";
  }

  showProblem() {
    const { error, note } = this.value;
    if (error) setText(this.alert, showError(this.meta.slug, error));
    else {
      clearError(this.meta.slug);
      setText(this.alert, "");
    }
    this.note.hidden = !note;
    setText(this.note, note ?? "");
  }

  get shown() {
    return this.root.getClientRects().length > 0;
  }

  writeAddress() {
    if (!this.shown) return;
    const now = new URLSearchParams(location.search);
    const next = new URLSearchParams(this.value.query);
    for (const name of KEPT_IN_ADDRESS) if (now.has(name) && !next.has(name)) next.set(name, now.get(name));
    next.set("_m", this.meta.slug);
    history.replaceState(history.state, "", `${location.pathname}?${next}${location.hash}`);
  }

  async copyLink() {
    const address = location.origin + this.value.href;
    const label = this.copy.lastChild;
    if (await copyText(address)) {
      label.textContent = "copied";
      setTimeout(() => setText(label, "copy link"), 1500);
      return;
    }
    this.address.hidden = false;
    this.address.value = address;
    this.address.select();
  }

  /** Settings that are too long for a link leave as a file. */
  saveSettings() {
    const { settings } = this.value;
    const text = typeof settings === "string" ? settings : JSON.stringify(settings, null, 1);
    const file = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    h("a", { href: file, download: `${this.meta.slug}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(file), 1000);
  }

  /** Keys and the connection are matters of the whole page, so they are heard on the document. */
  listen() {
    document.addEventListener("keydown", (event) => {
      if (!this.root.isConnected || !this.shown) return;
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !ACTIVE.has(this.value.state)) {
        event.preventDefault();
        this.press();
      } else if (event.key === "Escape" && !event.defaultPrevented && !event.target.closest('[aria-expanded="true"]') && ACTIVE.has(this.value.state)) {
        this.press();
      }
    });
    addEventListener("offline", () => (this.doubtful = true));
    addEventListener("online", () => this.reattach());
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.doubtful = true;
      else this.reattach();
    });
    this.pulse = setInterval(() => this.reattach(), 5000);
  }

  /** Asks for the same run again when its stream was lost: the server attaches the page to the computation. */
  reattach() {
    if (!this.root.isConnected) return clearInterval(this.pulse);
    const silent = performance.now() - this.heardAt > SILENCE_MS;
    const waiting = this.value.state === "running" || this.value.state === "queued";
    if (!waiting || !silent || !this.doubtful || document.hidden || !navigator.onLine) return undefined;
    this.heardAt = performance.now();
    setText(this.message, "Reconnecting");
    return this.link.send("run", { fresh: false });
  }
}
