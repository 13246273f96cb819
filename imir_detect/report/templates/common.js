"use strict";
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
};

// Theme: the system's, until the reader says otherwise.
const theme = one("#theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
});

// Sorting: one column at a time; a second click turns it round.
function direction(header) {
  const down = header.getAttribute("aria-sort") !== "descending";
  for (const other of header.parentNode.children) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  return down ? -1 : 1;
}
const order = (a, b) => (a === b ? 0 : a === null ? -1 : b === null ? 1 : a < b ? -1 : 1);
for (const table of all("table.sorts"))
  all("thead button", table).forEach((button, column) =>
    button.addEventListener("click", () => {
      const turn = direction(button.parentNode);
      const key = (row) => {
        const text = row.children[column].dataset.v;
        return text === "" || Number.isNaN(Number(text)) ? text : Number(text);
      };
      const body = one("tbody", table);
      body.append(...[...body.children].sort((a, b) => turn * order(key(a), key(b))));
    }));

addEventListener("beforeprint", () => { for (const node of all("details")) node.open = true; });
