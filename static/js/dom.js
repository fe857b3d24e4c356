/* Small utilities that all kinds share: elements, values, numbers, messages between components. */

/**
 * A new element. `props`: `class`, `text`, `on` (event -> listener), anything else is an attribute
 * (null and false leave it out). Text only ever enters by textContent.
 */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [type, listener] of Object.entries(value)) node.addEventListener(type, listener);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A button with a class and a click; `props` are further attributes. */
export function button(name, click, props, ...children) {
  return h("button", { type: "button", class: name, ...props, on: { click } }, ...children);
}

/** One of the icons of static/icons, as decoration: the text beside it carries the meaning. */
export function icon(name) {
  return h("span", { class: `pp-icon pp-icon-${name}`, "aria-hidden": "true" });
}

/** Sets the text only when it changed, so that selections and screen readers are left in peace. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The value of a component as an object: JSON text or an object; "" and null give null. */
export function parse(value) {
  if (value === null || value === undefined || value === "") return null;
  return typeof value === "string" ? JSON.parse(value) : value;
}

/** Wraps `fn` so that it runs at most once a frame, with the newest argument. */
export function eachFrame(fn) {
  let newest;
  let asked = false;
  return (argument) => {
    newest = argument;
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      fn(newest);
    });
  };
}

/** Wraps `fn` so that it runs `wait_ms` after the last call. */
export function debounce(fn, wait_ms) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => fn(...args), wait_ms);
  };
}

/** A number with four significant digits; whole numbers below a million are written out. */
export function formatNumber(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en").replace("-", "\u2212");
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(3) : value.toPrecision(4);
  return text.replace(/e\+?/, "e").replaceAll("-", "\u2212");
}

/** Any metric's value as text; null is undefined in the method's sense. */
export function formatValue(value) {
  if (value === null || value === undefined) return "undefined";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? formatNumber(value) : String(value);
}

/** 9 s, 0.4 s, 2 min. */
export function formatSeconds(seconds) {
  if (seconds >= 90) return `${Math.round(seconds / 60)} min`;
  return `${seconds >= 1 ? Math.round(seconds) : Number(seconds.toPrecision(1))} s`;
}

/** 1st, 2nd, 3rd, 11th. */
export function ordinal(n) {
  const suffix = { one: "st", two: "nd", few: "rd", other: "th" };
  return `${n}${suffix[new Intl.PluralRules("en", { type: "ordinal" }).select(n)]}`;
}

const kept = new Map();

/** Tells the other components of a page something; a state (not a request) is kept for those who come later. */
export function publish(type, detail, { keep }) {
  if (keep) kept.set(`${type} ${detail.slug}`, detail);
  document.dispatchEvent(new CustomEvent(type, { detail }));
}

/** Calls `listener(detail)` for this method's messages while `root` is in the page, at once with the last kept one. */
export function subscribe(type, slug, root, listener) {
  document.addEventListener(type, function hear(event) {
    if (!root.isConnected) document.removeEventListener(type, hear);
    else if (event.detail.slug === slug) listener(event.detail);
  });
  const last = kept.get(`${type} ${slug}`);
  if (last) listener(last);
}

/** Copies text; true when the clipboard took it (an embedded page may be refused). */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Arrow keys, Home and End move the focus within a row of buttons; `pick(button)` is told when given. */
export function rovingFocus(container, selector, pick) {
  container.addEventListener("keydown", (event) => {
    const items = [...container.querySelectorAll(selector)];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = items[(to + items.length) % items.length];
    next.focus();
    pick?.(next);
  });
}
