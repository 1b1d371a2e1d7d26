"use strict";
// Columns are sorted on request, and a link opens the folds around its place. Without this script all stays readable.
(() => {
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell === undefined ? "" : (cell.dataset.sort === undefined ? cell.textContent.trim() : Number(cell.dataset.sort));
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, "en", {numeric: true});
  };
  const sort = (table, head, column) => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort((one, two) => (up ? 1 : -1) * compare(key(one, column), key(two, column)));
    table.tBodies[0].append(...rows);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, head, column));
    });
  }
  const unfold = () => {
    const place = document.getElementById(location.hash.slice(1));
    let folded = false;
    for (let fold = place && place.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      folded = folded || !fold.open;
      fold.open = true;
    }
    if (folded) place.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
  });
})();
