/* A dialogue answered by buttons. Event: {type: "answer", id}. */
import { button, h, rovingFocus } from "../dom.js";

export class Panel {
  mount(element, send) {
    this.send = send;
    this.log = h("div", { class: "pp-chat", role: "log", "aria-label": "Dialogue", tabindex: 0 });
    this.prompt = h("p", { class: "pp-chat-prompt" });
    this.options = h("div", { class: "pp-chat-options", role: "group", "aria-label": "Answers" });
    this.folds = h("div", { class: "pp-chat-folds" });
    this.element = h("div", { class: "pp-dialogue" }, this.log, this.prompt, this.options, this.folds);
    element.replaceChildren(this.element);
    rovingFocus(this.options, "button");
  }

  /**
   * Takes {turns: [{who: "lab" | "person", text}], options: [{id, text, quiet?}], prompt, person?, folds?: [{title, lines, code?}], lead?}.
   * Quiet options are no answers (back, not sure); folds are texts on demand; a lead stands beside the main picture.
   */
  update({ turns, options, prompt, person = "You", folds = [], lead = false }) {
    this.person = person;
    this.element.classList.toggle("pp-dialogue-lead", lead);
    this.showFolds(folds);
    const hadFocus = this.options.contains(document.activeElement);
    const grown = turns.length > this.log.children.length;
    while (this.log.children.length > turns.length) this.log.lastChild.remove();
    turns.forEach((turn, index) => this.showTurn(turn, index));
    this.prompt.textContent = prompt ?? "";
    this.prompt.hidden = !prompt;
    this.showOptions(options, hadFocus);
    if (grown) this.log.scrollTop = this.log.scrollHeight; // last: what stands below takes its share of the height first
  }

  showOptions(options, hadFocus) {
    if (JSON.stringify(options) === this.shownOptions) return;
    this.shownOptions = JSON.stringify(options);
    this.options.replaceChildren(...options.map(({ id, text, quiet }) => button(quiet ? "pp-quiet" : "pp-button", () => this.send({ type: "answer", id }), { text })));
    // The pressed answer is gone: the focus goes on to what can be answered next.
    if (hadFocus) (this.options.firstChild ?? this.log).focus({ preventScroll: true });
  }

  showFolds(folds) {
    const text = JSON.stringify(folds);
    if (text === this.shownFolds) return; // else an open one would close with each answer
    this.shownFolds = text;
    this.folds.replaceChildren(...folds.map(({ title, lines, code }) => h("details", { class: "pp-fold" }, h("summary", { text: title }),
      h("ul", {}, ...lines.map((line) => h("li", { text: line }))), code ? h("pre", { text: code }) : null)));
  }

  showTurn({ who, text }, index) {
    let turn = this.log.children[index];
    if (!turn) {
      turn = h("p", { class: "pp-turn" }, h("span", { class: "pp-turn-who" }), h("span", { class: "pp-turn-text" }));
      this.log.append(turn);
    }
    turn.dataset.who = who;
    turn.firstChild.textContent = who === "person" ? this.person : "Lab";
    if (turn.lastChild.textContent !== text) turn.lastChild.textContent = text;
  }
}
