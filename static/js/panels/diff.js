/* Two texts line by line: what was taken away, what was added. Nothing is sent. */
import { h } from "../dom.js";

const LIMIT = 1_200; // lines a side; the table of the comparison grows with the product

/** The shortest list of steps [sign, line] from one list of lines to the other, sign " ", "-" or "+". */
export function compareLines(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const left = before.slice(start, before.length - end);
  const right = after.slice(start, after.length - end);
  const same = (lines) => lines.map((line) => [" ", line]);
  const whole = () => [...left.map((line) => ["-", line]), ...right.map((line) => ["+", line])];
  const middle = left.length > LIMIT || right.length > LIMIT ? whole() : longestCommon(left, right);
  return [...same(before.slice(0, start)), ...middle, ...same(before.slice(before.length - end))];
}

/** The steps along a longest common subsequence (Wagner and Fischer's table). */
function longestCommon(left, right) {
  const wide = right.length + 1;
  const length = new Uint32Array((left.length + 1) * wide); // length[i, j]: common lines of left[i:] and right[j:]
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      const at = i * wide + j;
      length[at] = left[i] === right[j] ? length[at + wide + 1] + 1 : Math.max(length[at + wide], length[at + 1]);
    }
  }
  const steps = [];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    const at = i * wide + j;
    if (i < left.length && j < right.length && left[i] === right[j]) {
      steps.push([" ", left[i]]);
      i += 1;
      j += 1;
    } else if (j === right.length || (i < left.length && length[at + wide] >= length[at + 1])) {
      steps.push(["-", left[i]]);
      i += 1;
    } else {
      steps.push(["+", right[j]]);
      j += 1;
    }
  }
  return steps;
}

const SPOKEN = { "-": "removed: ", "+": "added: ", " ": "" };
const CLASSES = { "-": "pp-line pp-line-gone", "+": "pp-line pp-line-new", " ": "pp-line" };

export class Panel {
  mount(element) {
    this.count = h("p", { class: "pp-legend" });
    this.code = h("code");
    this.element = h("pre", { class: "pp-diff", tabindex: 0, role: "region", "aria-label": "Changes" }, this.code);
    element.replaceChildren(this.count, this.element);
  }

  /** Takes {before, after, language}. */
  update({ before, after, language }) {
    if (before === this.before && after === this.after) return;
    this.before = before;
    this.after = after;
    if (language) this.code.className = `language-${language}`;
    const steps = compareLines(before.split("\n"), after.split("\n"));
    const counted = (sign) => steps.filter((step) => step[0] === sign).length;
    this.count.textContent = `Lines added: ${counted("+")}, removed: ${counted("-")}`;
    this.code.replaceChildren(...steps.map(([sign, line]) => h("span", { class: CLASSES[sign] },
      h("span", { class: "pp-line-sign", text: sign, "aria-hidden": "true" }), h("span", { class: "pp-hidden", text: SPOKEN[sign] }), `${line}\n`)));
  }
}
