/* Tokens of a text, tinted by a value; a click chooses one. Event: {type: "click", index, text}. */
import { button, formatNumber, h, rovingFocus } from "../dom.js";
import { colours } from "../tokens.js";

export class Panel {
  mount(element, send) {
    this.send = send;
    this.line = h("div", { class: "pp-tokens", role: "group", "aria-label": "Tokens" });
    this.legend = h("p", { class: "pp-legend", hidden: true });
    element.replaceChildren(this.line, this.legend);
    rovingFocus(this.line, "button");
  }

  /** Takes {tokens: [{text, value, color?, selected?, struck?}], legend}; values tint from none (0) to full (1). */
  update({ tokens, legend }) {
    while (this.line.children.length > tokens.length) this.line.lastChild.remove();
    while (this.line.children.length < tokens.length) this.line.append(this.makeToken(this.line.children.length));
    const colour = colours(this.line);
    tokens.forEach((token, index) => this.paint(this.line.children[index], token, colour));
    this.legend.hidden = !legend;
    this.legend.textContent = legend ?? "";
    this.tokens = tokens;
    const chosen = tokens.findIndex((token) => token.selected);
    if (chosen !== this.chosen) this.showChosen(chosen);
  }

  /** In a strip of one line the chosen token may stand out of sight. */
  showChosen(chosen) {
    this.chosen = chosen;
    const node = this.line.children[chosen];
    if (!node || this.line.scrollWidth <= this.line.clientWidth) return;
    this.line.scrollLeft = node.offsetLeft - this.line.offsetLeft - (this.line.clientWidth - node.offsetWidth) / 2;
  }

  makeToken(index) {
    return button("pp-token", () => this.send({ type: "click", index, text: this.tokens[index].text }), {});
  }

  paint(node, { text, value, color, selected, struck }, colour) {
    // Spaces at the edges are part of a token: they are drawn as a dot, as tokenisers are usually shown.
    const shown = text.replace(/^ /, "\u00b7").replace(/\n/g, "\u21b5") || "\u2205";
    if (node.textContent !== shown) node.textContent = shown;
    const share = typeof value === "number" ? Math.min(1, Math.max(0, value)) : 0;
    node.style.setProperty("--tint", color ? colour(color) : "var(--method)");
    node.style.setProperty("--share", `${Math.round(60 * share)}%`);
    node.setAttribute("aria-pressed", String(Boolean(selected)));
    node.classList.toggle("pp-struck", Boolean(struck));
    const words = [text.trim() || "space", typeof value === "number" ? formatNumber(value) : null, struck ? "removed" : null];
    node.setAttribute("aria-label", words.filter(Boolean).join(", "));
    node.title = typeof value === "number" ? formatNumber(value) : "";
  }
}
