"use strict";
// A click sorts a column, a link opens the folds around its place, and printing opens all.
// Without this script all stays readable.
(() => {
  const units = {
    ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30,
  };
  // The number with which a cell begins, in seconds or bytes where it has such a unit; NaN for words.
  const size = (text) => {
    const minutes = text.match(/^(\d+) min (\d+) s$/);
    if (minutes) return 60 * Number(minutes[1]) + Number(minutes[2]);
    const found = text.match(/^[<>]?(-?)\$?(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)x?(?:$|\s+([^\s[]*))/);
    return found ? Number(found[1] + found[2].replaceAll(",", "")) * (units[found[3]] || 1) : NaN;
  };
  const compare = (one, two) => {
    const [a, b] = [size(one), size(two)];
    if (isNaN(a) && isNaN(b)) return one.localeCompare(two, "en", {numeric: true});
    return isNaN(a) || isNaN(b) ? isNaN(a) - isNaN(b) : a - b;
  };
  for (const table of document.querySelectorAll("table")) {
    const heads = Array.from(table.tHead.rows[0].cells), body = table.tBodies[0];
    if (!body || body.rows.length < 2) continue;
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const text = (row) => row.cells[column].textContent.trim();
        const rows = Array.from(body.rows).sort((a, b) => (up ? 1 : -1) * compare(text(a), text(b)));
        body.append(...rows);
      });
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
