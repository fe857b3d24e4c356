/* The drawer: how it works, exercise, claims, code, data. A text is fetched when its tab is first opened. */
import { button, copyText, debounce, h, publish, rovingFocus, subscribe } from "./dom.js";

const FOLLOWS_RUN = new Set(["claims", "code", "data"]);

export function mount(root, link, meta) {
  return new Drawer(root, meta);
}

class Drawer {
  constructor(root, meta) {
    this.root = root;
    this.slug = meta.slug;
    this.query = "";
    this.tabs = new Map(meta.tabs.map((tab, index) => [tab.id, this.makeTab(tab, index)]));
    const made = [...this.tabs.values()];
    const list = h("div", { class: "pp-drawer-tabs", role: "tablist", "aria-label": "About the method" }, ...made.map(({ handle }) => handle));
    root.replaceChildren(list, ...made.map(({ panel }) => panel));
    rovingFocus(list, "[role=tab]", (handle) => this.open(handle.dataset.tab));
    root.addEventListener("click", (event) => this.onClick(event));
    const follow = debounce(() => this.markStale(), 400); // a dragged slider changes the run many times a second
    subscribe("playable:run", this.slug, root, ({ run, query }) => {
      // A run with a private file is found by its id alone.
      this.query = `?${query ? `${query}&` : ""}_run=${run}`;
      follow();
    });
    this.whenSeen(() => this.open(meta.tabs[0].id));
  }

  makeTab({ id, title }, index) {
    const name = `${this.slug}--${id}`;
    const role = { role: "tab", id: `${name}-tab`, "aria-controls": `${name}-panel`, "aria-selected": "false", tabindex: index ? -1 : 0 };
    const handle = button("pp-drawer-tab", () => this.open(id), { ...role, "data-tab": id, text: title });
    const panel = h("div", { class: "pp-about", role: "tabpanel", id: `${name}-panel`, "aria-labelledby": `${name}-tab`, tabindex: 0, hidden: true });
    return { id, handle, panel, fresh: false };
  }

  whenSeen(act) {
    const sight = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      sight.disconnect();
      act();
    }, { rootMargin: "200px" });
    sight.observe(this.root);
  }

  update() {} // the drawer has no value of its own

  open(id) {
    for (const tab of this.tabs.values()) {
      const chosen = tab.id === id;
      tab.handle.setAttribute("aria-selected", String(chosen));
      tab.handle.tabIndex = chosen ? 0 : -1;
      tab.panel.hidden = !chosen;
    }
    this.shown = this.tabs.get(id);
    if (!this.shown.fresh) this.load(this.shown);
  }

  markStale() {
    for (const tab of this.tabs.values()) if (FOLLOWS_RUN.has(tab.id)) tab.fresh = false;
    if (this.shown && !this.shown.fresh) this.load(this.shown);
  }

  async load(tab) {
    tab.fresh = true;
    tab.panel.setAttribute("aria-busy", "true");
    const request = fetch(`/m/${this.slug}/about/${tab.id}${this.query}`);
    tab.request = request;
    const answer = await request.catch(() => null);
    if (tab.request !== request) return; // a newer one is on its way
    tab.panel.removeAttribute("aria-busy");
    if (!answer?.ok) {
      tab.fresh = false;
      const retry = button("pp-quiet", () => this.load(tab), { text: "try again" });
      tab.panel.replaceChildren(h("p", { class: "pp-note", text: "This text could not be fetched. " }, retry));
      return;
    }
    tab.panel.innerHTML = await answer.text(); // made by our own server from the method's card
    for (const block of tab.panel.querySelectorAll("pre")) this.addCopy(block);
  }

  addCopy(block) {
    const text = block.textContent;
    const copier = button("pp-quiet pp-code-copy", copy, { text: "copy" });
    block.replaceWith(h("div", { class: "pp-code-block" }, block.cloneNode(true), copier));
    async function copy() {
      copier.textContent = (await copyText(text)) ? "copied" : "select and copy by hand";
      setTimeout(() => (copier.textContent = "copy"), 1500);
    }
  }

  onClick(event) {
    const asked = event.target.closest("[data-preset], [data-claim]");
    const { preset, claim } = asked?.dataset ?? {};
    if (asked) publish("playable:preset", { slug: this.slug, wanted: claim ? { claim } : { name: preset } }, { keep: false });
  }
}
