/* A dialogue answered by buttons. Event: {type: "answer", id}. */
import { button, h, rovingFocus } from "../dom.js";

export class Panel {
  mount(element, send) {
    this.send = send;
    this.log = h("div", { class: "pp-chat", role: "log", "aria-label": "Dialogue", tabindex: 0 });
    this.prompt = h("p", { class: "pp-chat-prompt" });
    this.options = h("div", { class: "pp-chat-options", role: "group", "aria-label": "Answers" });
    element.replaceChildren(this.log, this.prompt, this.options);
    rovingFocus(this.options, "button");
  }

  /** Takes {turns: [{who: "lab" | "person", text}], options: [{id, text}], prompt}. */
  update({ turns, options, prompt }) {
    const hadFocus = this.options.contains(document.activeElement);
    const grown = turns.length > this.log.children.length;
    while (this.log.children.length > turns.length) this.log.lastChild.remove();
    turns.forEach((turn, index) => this.showTurn(turn, index));
    if (grown) this.log.scrollTop = this.log.scrollHeight;
    this.prompt.textContent = prompt ?? "";
    this.prompt.hidden = !prompt;
    if (JSON.stringify(options) === this.shownOptions) return;
    this.shownOptions = JSON.stringify(options);
    this.options.replaceChildren(...options.map(({ id, text }) => button("pp-button", () => this.send({ type: "answer", id }), { text })));
    // The pressed answer is gone: the focus goes on to what can be answered next.
    if (hadFocus) (this.options.firstChild ?? this.log).focus({ preventScroll: true });
  }

  showTurn({ who, text }, index) {
    let turn = this.log.children[index];
    if (!turn) {
      turn = h("p", { class: "pp-turn" }, h("span", { class: "pp-turn-who" }), h("span", { class: "pp-turn-text" }));
      this.log.append(turn);
    }
    turn.dataset.who = who;
    turn.firstChild.textContent = who === "person" ? "You" : "Lab";
    if (turn.lastChild.textContent !== text) turn.lastChild.textContent = text;
  }
}
