/* What belongs to the frame of every page: the switch between light and dark, and the search of the gallery. */
const KEY = "playable-theme";

function setDark(dark) {
  document.body.classList.toggle("dark", dark);
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
}

function chosen() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage can be forbidden in an embedded page
  }
}

/** The switch itself turns the page, so that a press counts before this script is there; what was turned to is kept here. */
function keepTheme() {
  const dark = document.body.classList.contains("dark");
  setDark(dark);
  try {
    localStorage.setItem(KEY, dark ? "dark" : "light");
  } catch {
    // the choice then lasts as long as the page
  }
}

/** Shows the cards that hold all words of the search, hides groups that have none left. */
function filterCards(home, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const card of home.querySelectorAll(".pp-card")) {
    const hay = `${card.textContent} ${card.dataset.words ?? ""}`.toLowerCase();
    card.hidden = !words.every((word) => hay.includes(word));
    shown += card.hidden ? 0 : 1;
  }
  for (const group of home.querySelectorAll(".pp-group")) group.hidden = !group.querySelector(".pp-card:not([hidden])");
  home.classList.toggle("pp-home-none", shown === 0);
}

// Gradio knows one title for all pages.
document.title = document.querySelector(".pp-head")?.dataset.title ?? document.title;

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-theme-toggle]")) keepTheme();
});
document.addEventListener("input", (event) => {
  const home = event.target.closest(".pp-home");
  if (home && event.target.type === "search") filterCards(home, event.target.value);
});

// Who was quicker than this script has typed already.
for (const field of document.querySelectorAll('.pp-home input[type="search"]')) filterCards(field.closest(".pp-home"), field.value);

// A scheme named in the address is for this page only; otherwise the person's last choice holds.
const named = new URLSearchParams(location.search).get("__theme");
const choice = named === "light" || named === "dark" ? named : chosen();
if (document.querySelector("[data-theme-toggle][data-turned]")) keepTheme();
else if (choice) setDark(choice === "dark");
