/* The stage: the method's pictures, its metrics, and what made them. Views change in place, by name. */
import { button, eachFrame, h, icon, parse, publish, setText, subscribe } from "./dom.js";
import { FramePlayer } from "./frames.js";
import { Metrics } from "./metrics.js";
import { LivePlot } from "./plot.js";
import { reducedMotion } from "./tokens.js";

const INVITATION = "Press Run to see the method work.";
const MAIN_PX = [340, 720]; // least and greatest height of the main picture
const EDGE_PX = 8; // from its lower end to the screen's

const onPhone = () => matchMedia("(max-width: 860px)").matches; // where controls and picture stand in one column

export function mount(root, link, meta) {
  return new Stage(root, link, meta);
}

class Stage {
  constructor(root, link, meta) {
    this.root = root;
    this.link = link;
    this.meta = meta;
    this.views = new Map();
    this.filled = false;
    if (meta.theme) (root.closest(".pp-method") ?? root).dataset.theme = meta.theme;
    this.invitation = h("p", { class: "pp-invitation", hidden: true, text: INVITATION });
    this.grid = h("div", { class: "pp-views" });
    this.metrics = new Metrics();
    this.notes = h("ul", { class: "pp-notes", hidden: true });
    this.ran = h("p", { class: "pp-ran", hidden: true });
    root.replaceChildren(this.invitation, this.grid, this.notes, this.ran);
    this.later = eachFrame((raw) => this.show(parse(raw)));
    subscribe("playable:run", meta.slug, root, ({ state }) => setText(this.invitation, state === "running" ? "The first picture is on its way." : INVITATION));
    subscribe("playable:asked", meta.slug, root, () => this.comeIntoSight());
    if (!link.value) this.fetchStored();
  }

  /** On a phone the controls stand between Run and the picture: whoever pressed Run wants to see the picture. */
  comeIntoSight() {
    if (!onPhone()) return;
    this.root.scrollIntoView({ block: "start", behavior: reducedMotion() ? "auto" : "smooth" });
  }

  update(raw) {
    if (!raw) return;
    this.filled = true;
    this.later(raw);
  }

  /** A page that was just opened shows the stored run of its link or default preset; it never starts one. */
  async fetchStored() {
    const { slug } = this.meta;
    const mine = new URLSearchParams(location.search).get("_m") === slug;
    const answer = await fetch(`/m/${slug}/stored${mine ? location.search : ""}`).catch(() => null);
    if (this.filled) return;
    if (answer?.status !== 200) {
      this.invitation.hidden = false;
      return;
    }
    const stored = await answer.json();
    if (this.filled) return;
    publish("playable:stored", { slug, bar: parse(stored.bar) }, { keep: true });
    this.later(stored.stage);
  }

  show(value) {
    if (!value) return;
    this.invitation.hidden = true;
    if (!value.views.length && value.progress < 1) return; // nothing to draw yet: what is shown stays until there is
    const names = new Set(value.views.map((view) => view.name));
    for (const [name, view] of this.views) if (!names.has(name)) this.drop(name, view);
    for (const spec of value.views) this.place(spec);
    this.arrange(value.views);
    for (const spec of value.views) this.views.get(spec.name).update(spec, value.run);
    this.metrics.update(value.metrics ?? []);
    this.showNotes(value.notes ?? []);
    this.showRan(value.ran);
  }

  place(spec) {
    const key = `${spec.kind} ${spec.panel ?? ""} ${spec.span}`;
    const known = this.views.get(spec.name);
    if (known?.key === key) return;
    if (known) this.drop(spec.name, known);
    const send = (event) => this.link.send("act", { view: spec.name, event });
    const view = spec.kind === "figure" ? new FigureView(this.meta.slug, spec, send) : new PanelView(this.meta.slug, spec, send);
    view.key = key;
    this.views.set(spec.name, view);
  }

  drop(name, view) {
    view.destroy();
    view.element.remove();
    this.views.delete(name);
  }

  /** The strip that leads, the main picture, the figures that sum it up, then the rest; nodes that are in place are not touched. */
  arrange(specs) {
    const place = (spec) => Math.max(0, ["lead", "main"].indexOf(spec.span ?? "half") + 1) || 3;
    const of = (which) => specs.filter((spec) => place(spec) === which).map((spec) => this.views.get(spec.name).element);
    const wanted = [...of(1), ...of(2), this.metrics.element, ...of(3)];
    wanted.forEach((element, index) => {
      if (this.grid.children[index] !== element) this.grid.insertBefore(element, this.grid.children[index] ?? null);
    });
  }

  showNotes(notes) {
    this.notes.hidden = notes.length === 0;
    if (notes.join("\n") === this.shownNotes) return;
    this.shownNotes = notes.join("\n");
    this.notes.replaceChildren(...notes.map((note) => h("li", { text: note })));
  }

  showRan(ran) {
    this.ran.hidden = !ran;
    if (!ran) return;
    const seconds = typeof ran.seconds === "number" ? `${ran.seconds.toFixed(1)} s` : ran.seconds;
    const where = [ran.device && `on ${ran.device}`, seconds];
    const which = [ran.seed !== undefined && `seed ${ran.seed}`, ran.version && `version ${ran.version}`];
    setText(this.ran, `What ran: ${[ran.model, ran.data, ran.size, ...where, ...which].filter(Boolean).join(", ")}`);
  }
}

/** What figures and panels share: a titled card in the grid with a text summary beneath. */
class View {
  constructor(slug, spec) {
    this.slug = slug;
    this.name = spec.name;
    const id = `${slug}--view-${spec.name}`;
    this.title = h("h3", { class: "pp-view-title", id: `${id}-title` });
    this.summary = h("figcaption", { class: "pp-summary", id: `${id}-summary` });
    this.body = h("div", { class: "pp-view-body" });
    this.head = h("div", { class: "pp-view-head" }, this.title);
    const described = { "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-summary` };
    this.element = h("figure", { class: "pp-view", id, ...described, "data-span": spec.span ?? "half" }, this.head, this.body, this.summary);
  }

  describe(spec) {
    setText(this.title, spec.title ?? "");
    setText(this.summary, spec.summary ?? "");
  }
}

class FigureView extends View {
  constructor(slug, spec, send) {
    super(slug, spec);
    this.node = h("div", { class: "pp-plot" });
    this.body.append(this.node);
    this.fit = () => this.fitScreen();
    addEventListener("resize", this.fit);
    this.plot = new LivePlot(this.node, send);
    this.frames = new FramePlayer(this.plot);
    this.body.append(this.frames.element);
    this.head.append(this.menu());
  }

  menu() {
    const item = (sign, text, act) => button("pp-menu-item", () => {
      menu.open = false;
      act();
    }, {}, icon(sign), h("span", { text }));
    const file = `${this.slug}-${this.name}`;
    this.unghost = item("ghost", "Clear ghost", () => this.plot.clearGhost());
    const saves = ["png", "svg"].map((format) => item("download", `Save as ${format.toUpperCase()}`, () => this.plot.save(format, file)));
    const opener = h("summary", { "aria-label": "Picture: save, clear ghost", title: "Save, clear ghost" }, icon("download"));
    const menu = h("details", { class: "pp-menu" }, opener, h("div", { class: "pp-menu-list" }, ...saves, this.unghost));
    menu.addEventListener("toggle", () => (this.unghost.disabled = !this.plot.hasGhost));
    menu.addEventListener("focusout", (event) => {
      if (!menu.contains(event.relatedTarget)) menu.open = false;
    });
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      event.preventDefault(); // Escape closes the menu; it does not stop the run
      menu.open = false;
      opener.focus();
    });
    return menu;
  }

  /** The main picture ends where the screen does, so that it is seen whole together with the run bar; its summary follows below. */
  fitScreen() {
    if (this.element.dataset.span !== "main" || !this.element.isConnected || onPhone()) return;
    const top_px = this.node.getBoundingClientRect().top + scrollY;
    this.node.style.height = `${Math.min(MAIN_PX[1], Math.max(MAIN_PX[0], innerHeight - top_px - EDGE_PX))}px`;
  }

  update(spec, run) {
    this.describe(spec);
    const height_px = spec.figure.layout?.meta?.height;
    if (height_px && spec.span !== "main") this.node.style.height = `${height_px}px`;
    const narrow_px = spec.figure.layout?.meta?.narrow?.meta?.height;
    if (narrow_px && onPhone()) this.node.style.height = `${narrow_px}px`;
    if (!this.figured) this.fit(); // once: a picture that changes its height while frames stream would jump
    this.figured = true;
    this.plot.update(spec.figure, run);
    this.frames.update(spec.figure.frames);
  }

  destroy() {
    removeEventListener("resize", this.fit);
    this.frames.stop();
    this.plot.destroy();
  }
}

class PanelView extends View {
  constructor(slug, spec, send) {
    super(slug, spec);
    this.gone = false;
    import(`./panels/${spec.panel}.js`).then(({ Panel }) => {
      if (this.gone) return;
      this.panel = new Panel();
      this.panel.mount(this.body, send);
      this.panel.update(this.data);
    });
  }

  update(spec) {
    this.describe(spec);
    this.data = spec.data;
    this.panel?.update(spec.data);
  }

  destroy() {
    this.gone = true;
  }
}
