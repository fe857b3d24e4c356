/*
 * The loader, the one classic script of the lab: Gradio fetches it with `gr.HTML(head=...)` and then runs
 * `Playable.mount(kind, element, {props, trigger, watch})`. Everything else is an ES module beside this file,
 * fetched the first time a kind is mounted. A kind's module exports `mount(root, link, meta) -> {update(value)}`.
 */
(() => {
  if (window.Playable) return; // Gradio may fetch the script again when a page is opened in place
  const base = new URL(".", document.currentScript.src).href;
  const handles = new WeakMap(); // the component's element -> {root, link, view}

  /** The component's side of a view: reads and sets the value, sends events to Python. */
  function makeLink(api) {
    return {
      api,
      get value() {
        return this.api.props.value;
      },
      set value(value) {
        this.api.props.value = value;
      },
      send(name, payload = {}) {
        this.api.trigger(name, payload);
      },
    };
  }

  async function attach(kind, element, handle) {
    const root = element.querySelector(`.pp-${kind}`) ?? element;
    handle.root = root;
    const { mount } = await import(`${base}${kind}.js`);
    if (handle.root !== root) return;
    handle.view = mount(root, handle.link, JSON.parse(root.dataset.meta || "{}"));
    handle.view.update(handle.link.value);
  }

  /** Shows a component of this kind in `element`. Calling it twice is harmless: the newest api is used. */
  function mount(kind, element, api) {
    const known = handles.get(element);
    if (known) {
      known.link.api = api;
      if (!element.contains(known.root)) return attach(kind, element, known);
      api.watch("value", () => known.refresh());
      return Promise.resolve();
    }
    const handle = { root: null, link: makeLink(api), view: null };
    handle.refresh = () => {
      // Gradio renders the template anew when it changes: the old root is then out of the page.
      if (!element.contains(handle.root)) return attach(kind, element, handle);
      return handle.view?.update(handle.link.value);
    };
    handles.set(element, handle);
    api.watch("value", () => handle.refresh());
    return attach(kind, element, handle);
  }

  window.Playable = { mount, base };
  import(`${base}page.js`);
})();
