/* Groups of switches. Event: {type: "click", id, pressed} with the state that was asked for. */
import { button, h, rovingFocus } from "../dom.js";

export class Panel {
  mount(element, send) {
    this.element = h("div", { class: "pp-chip-groups" });
    this.send = send;
    this.chips = new Map();
    element.replaceChildren(this.element);
  }

  /** Takes {groups: [{title, chips: [{id, text, pressed, disabled}]}]}. */
  update({ groups }) {
    const shape = JSON.stringify(groups.map(({ title, chips }) => [title, chips.map((chip) => chip.id)]));
    if (shape !== this.shape) this.build(groups);
    this.shape = shape;
    for (const chip of groups.flatMap((group) => group.chips)) {
      const node = this.chips.get(chip.id);
      if (node.textContent !== chip.text) node.textContent = chip.text;
      node.setAttribute("aria-pressed", String(Boolean(chip.pressed)));
      node.disabled = Boolean(chip.disabled);
    }
  }

  build(groups) {
    this.chips.clear();
    this.element.replaceChildren(...groups.map(({ title, chips }) => {
      const row = h("div", { class: "pp-chip-row", role: "group", "aria-label": title });
      for (const { id } of chips) {
        const node = button("pp-chip", () => this.send({ type: "click", id, pressed: node.getAttribute("aria-pressed") !== "true" }), {});
        this.chips.set(id, node);
        row.append(node);
      }
      rovingFocus(row, "button:not(:disabled)");
      return h("div", { class: "pp-chip-group" }, h("h4", { text: title }), row);
    }));
  }
}
