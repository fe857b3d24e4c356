/* A small table whose cells can be edited. Event: {type: "edit", row, column, value}. */
import { formatValue, h } from "../dom.js";

export class Panel {
  mount(element, send) {
    this.send = send;
    this.head = h("tr");
    this.body = h("tbody");
    this.note = h("p", { class: "pp-legend", hidden: true });
    const table = h("table", { class: "pp-table" }, h("thead", {}, this.head), this.body);
    this.frame = h("div", { class: "pp-table-frame", tabindex: 0, role: "region", "aria-label": "Table" }, table);
    element.replaceChildren(this.frame, this.note);
  }

  /** Takes {columns: [{name, kind: "number" | "text" | "bool", editable?}], rows: [[...]], note, marked?}; marked: index of a row that stands out. */
  update({ columns, rows, note, marked = null }) {
    const shape = JSON.stringify([columns, rows.length]);
    if (shape !== this.shape) this.build(columns, rows.length);
    this.shape = shape;
    rows.forEach((row, r) => row.forEach((value, c) => this.showCell(this.body.children[r].children[c], value)));
    [...this.body.children].forEach((row, r) => (r === marked ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current")));
    this.note.hidden = !note;
    this.note.textContent = note ?? "";
  }

  build(columns, height) {
    this.head.replaceChildren(...columns.map(({ name, kind }) => h("th", { scope: "col", class: kind === "number" ? "pp-right" : null, text: name })));
    const rows = Array.from({ length: height }, (_, r) => h("tr", {}, ...columns.map((column, c) => this.makeCell(column, r, c))));
    this.body.replaceChildren(...rows);
  }

  makeCell({ name, kind, editable }, row, column) {
    const cell = h("td", { class: kind === "number" ? "pp-right" : null });
    if (!editable) return cell;
    const label = `${name}, row ${row + 1}`;
    const type = { bool: "checkbox", number: "number" }[kind] ?? "text";
    const input = h("input", { type, "aria-label": label, step: type === "number" ? "any" : null });
    input.addEventListener("change", () => {
      const value = kind === "bool" ? input.checked : kind === "number" ? input.valueAsNumber : input.value;
      const faulty = kind === "number" && Number.isNaN(value);
      input.setAttribute("aria-invalid", String(faulty));
      if (!faulty) this.send({ type: "edit", row, column, value });
    });
    cell.append(input);
    return cell;
  }

  showCell(cell, value) {
    const input = cell.querySelector("input");
    if (!input) {
      const text = value === null ? "" : formatValue(value);
      if (cell.textContent !== text) cell.textContent = text;
    } else if (input === document.activeElement) {
      return; // the person is typing here
    } else if (input.type === "checkbox") input.checked = Boolean(value);
    else input.value = value ?? "";
  }
}
