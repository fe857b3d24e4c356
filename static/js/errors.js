/* Marks the control that an input error names and says beneath it what is wrong and what to do. */
import { h } from "./dom.js";

const FOCUSABLE = "input, textarea, select, button";
const marked = new Map(); // slug -> function that takes the marks away

/** Takes away what `showError` left for this method. */
export function clearError(slug) {
  marked.get(slug)?.();
  marked.delete(slug);
}

/** Shows `{field, problem, remedy}` at the control `<slug>--<field>`; returns the sentence for the run bar. */
export function showError(slug, { field, problem, remedy }) {
  clearError(slug);
  const sentence = `${problem}; ${remedy}.`.replace(/\.\.$/, ".");
  const control = document.getElementById(`${slug}--${field}`);
  if (control) {
    // A control below a closed fold could not be seen.
    for (let fold = control.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    const id = `${slug}--${field}--error`;
    const text = h("p", { class: "pp-error", id, text: sentence });
    const inputs = [...control.querySelectorAll(FOCUSABLE)];
    for (const input of inputs) {
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", id);
    }
    control.classList.add("pp-invalid");
    control.append(text);
    marked.set(slug, () => {
      text.remove();
      control.classList.remove("pp-invalid");
      for (const input of inputs) {
        input.removeAttribute("aria-invalid");
        input.removeAttribute("aria-describedby");
      }
    });
  }
  const words = String(field).replaceAll("_", " ");
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}: ${sentence}`;
}
