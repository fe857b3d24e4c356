/* Pictures side by side; two can be laid over each other and wiped. An overlay is faded in by a switch. */
import { h, setText } from "../dom.js";

export class Panel {
  mount(element) {
    this.row = h("div", { class: "pp-images" });
    this.wipe = h("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": "Wipe between the two pictures", on: { input: () => this.showWipe() } });
    this.over = h("input", { type: "checkbox", on: { change: () => this.arrange() } });
    this.overLabel = h("label", { class: "pp-images-option" }, this.over, h("span", { text: "lay over each other" }));
    this.shade = h("input", { type: "checkbox", checked: true, on: { change: () => this.row.classList.toggle("pp-unshaded", !this.shade.checked) } });
    this.shadeLabel = h("label", { class: "pp-images-option" }, this.shade, h("span", { text: "show overlay" }));
    this.tools = h("div", { class: "pp-images-tools" }, this.overLabel, this.shadeLabel, this.wipe);
    element.replaceChildren(this.tools, this.row);
  }

  /** Takes {images: [{src, title, caption, overlay?}]}; src and overlay are data: or own addresses. */
  update({ images }) {
    while (this.row.children.length > images.length) this.row.lastChild.remove();
    while (this.row.children.length < images.length) this.row.append(this.makePicture());
    images.forEach((image, index) => this.showPicture(this.row.children[index], image));
    this.overLabel.hidden = images.length !== 2;
    this.shadeLabel.hidden = !images.some((image) => image.overlay);
    this.tools.hidden = this.overLabel.hidden && this.shadeLabel.hidden;
    this.arrange();
  }

  makePicture() {
    const pictures = [h("img", { class: "pp-image", decoding: "async" }), h("img", { class: "pp-image-overlay", alt: "", hidden: true })];
    const stack = h("div", { class: "pp-image-stack" }, ...pictures);
    return h("figure", { class: "pp-image-cell" }, stack, h("figcaption", {}, h("strong"), " ", h("span")));
  }

  showPicture(cell, { src, title, caption, overlay }) {
    const [picture, shade] = cell.querySelectorAll("img");
    if (picture.getAttribute("src") !== src) picture.src = src;
    picture.alt = caption ? `${title}: ${caption}` : title;
    shade.hidden = !overlay;
    if (overlay && shade.getAttribute("src") !== overlay) shade.src = overlay;
    setText(cell.querySelector("strong"), title);
    setText(cell.querySelector("figcaption span"), caption ?? "");
  }

  arrange() {
    const laid = this.over.checked && !this.overLabel.hidden;
    this.row.classList.toggle("pp-laid", laid);
    this.wipe.hidden = !laid;
    this.showWipe();
  }

  showWipe() {
    this.row.style.setProperty("--wipe", `${this.wipe.value}%`);
    this.wipe.setAttribute("aria-valuetext", `${this.wipe.value} percent of the first picture`);
  }
}
