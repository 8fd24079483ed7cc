"use strict";
const entries = JSON.parse(document.getElementById("entries").textContent);
const form = document.getElementById("filters");
const tiles = [...document.querySelectorAll("button.tile")];
const rows = [...document.querySelectorAll(".line:not(.head)")];
const sections = [...document.querySelectorAll(".vendor")];
const words = entries.map((entry) => Object.values(entry.facts).join(" ").toLowerCase());

function filter() {
  const find = form.elements.find.value.toLowerCase().split(" ").filter(Boolean);
  const { value: vendor } = form.elements.vendor;
  const { value: state } = form.elements.state;
  let shown = 0;
  for (const tile of tiles) {
    const number = tile.dataset.entry;
    const { facts } = entries[number];
    tile.hidden = Boolean((vendor && facts.vendor !== vendor) || (state && facts.state !== state)
      || find.some((word) => !words[number].includes(word)));
    shown += tile.hidden ? 0 : 1;
  }
  for (const row of rows) row.hidden = !row.querySelector(".tile:not([hidden])");
  for (const section of sections) section.hidden = !section.querySelector(".line:not(.head):not([hidden])");
  form.elements.shown.value = `${shown} shown`;
  const chosen = new URLSearchParams([...new FormData(form)].filter(([, text]) => text)).toString();
  history.replaceState(null, "", chosen ? `#${chosen}` : location.pathname + location.search);
}

function show(number) {
  const dialog = document.getElementById("details");
  const { title, facts, link } = entries[number];
  document.getElementById("details-title").textContent = title;
  const list = dialog.querySelector("dl");
  list.replaceChildren();
  for (const [name, text] of Object.entries(facts)) {
    if (text === "") continue;
    const term = document.createElement("dt");
    const said = document.createElement("dd");
    term.textContent = name;
    said.textContent = text;
    list.append(term, said);
  }
  if (link) {
    const anchor = document.createElement("a");
    anchor.href = link;
    anchor.textContent = link;
    const said = document.createElement("dd");
    said.append(anchor);
    const term = document.createElement("dt");
    term.textContent = "log";
    list.append(term, said);
  }
  dialog.showModal();
}

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
  } catch {
    // A page on plain HTTP has no clipboard: select the command instead.
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = "selected";
  }
}

for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
  if (form.elements[name]) form.elements[name].value = text;
}
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
document.querySelector("main").addEventListener("click", (event) => {
  const tile = event.target.closest("button.tile");
  if (tile) show(tile.dataset.entry);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.copy");
  if (button) copy(button);
});
filter();
