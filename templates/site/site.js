// Search and sorting. Without this file every page can still be read: search is shown only where it works.
(function () {
  "use strict";
  const top = typeof document === "undefined" ? "" : document.currentScript.dataset.top;

  // Search, by the same rule as `loop patterns list WORD` (loop/learning/searching.py).
  const WORD = /[\p{L}\p{N}]+/gu;
  const EMPTY = new Set("a an and are as at be by for from i in is it no not of on or that the there this to was with".split(" "));
  const EXACT = 1, BEGINNING = 0.8, PART = 0.5;
  const SHOWN = 30, MOST_WORDS = 12;

  function words(text) { return text.toLowerCase().match(WORD) || []; }

  function askedWords(question) {
    const all = [...new Set(words(question))];
    const telling = all.filter((word) => !EMPTY.has(word));
    return (telling.length ? telling : all).slice(0, MOST_WORDS);
  }

  function quality(word, other) {
    if (word === other) return EXACT;
    if (word.length >= 2 && other.startsWith(word)) return BEGINNING;
    if (word.length >= 3 && other.includes(word)) return PART;
    return 0;
  }

  // Each word of all texts, once, with the fields that have it: a question is held against words, not against texts.
  function prepare(entries) {
    const places = new Map();
    const fields = [];
    entries.forEach((entry, number) => entry[4].forEach(([weight, text]) => {
      const field = fields.push([number, weight]) - 1;
      for (const word of new Set(words(text))) {
        const known = places.get(word);
        if (known) known.push(field); else places.set(word, [field]);
      }
    }));
    return { entries, fields, places };
  }

  function search(question, index) {
    const wanted = askedWords(question);
    const scores = new Float64Array(index.entries.length), matched = new Uint8Array(index.entries.length);
    for (const word of wanted) {
      const best = new Map();
      for (const [other, fields] of index.places) {
        const found = quality(word, other);
        if (found) for (const field of fields) if (found > (best.get(field) || 0)) best.set(field, found);
      }
      const touched = new Set();
      for (const [field, found] of best) {
        const [entry, weight] = index.fields[field];
        scores[entry] += weight * found;
        touched.add(entry);
      }
      for (const entry of touched) matched[entry]++;
    }
    const most = matched.reduce((a, b) => Math.max(a, b), 0);
    const hits = [];
    if (most) matched.forEach((count, entry) => { if (count === most) hits.push(entry); });
    hits.sort((a, b) => scores[b] - scores[a] || a - b);
    return { hits, all: most === wanted.length };
  }

  if (typeof module !== "undefined") { module.exports = { prepare, search }; return; }

  const form = document.querySelector(".search"), input = document.getElementById("q");
  const hitsBox = document.getElementById("hits"), said = document.getElementById("hits-said"), list = document.getElementById("hits-list");
  let index = null, asked = false;

  function load() {
    if (asked) return;
    asked = true;
    const script = document.createElement("script");
    script.src = top + "search-index.js";
    script.onload = () => { index = prepare(window.LOOP_CATALOGUE); show(); };
    script.onerror = () => { said.textContent = "The search index could not be read."; hitsBox.hidden = false; };
    document.head.append(script);
  }

  function item(entry) {
    const [kind, title, line, url] = entry;
    const made = document.createElement("li"), link = document.createElement("a"), badge = document.createElement("span"), text = document.createElement("p");
    link.href = top + url; link.textContent = title;
    badge.className = "badge"; badge.textContent = kind;
    text.textContent = line;
    made.append(link, " ", badge, text);
    return made;
  }

  function show() {
    if (!index) return;
    const question = input.value.trim();
    hitsBox.hidden = !question;
    if (!question) { list.replaceChildren(); said.textContent = ""; return; }
    const { hits, all } = search(question, index);
    const count = hits.length === 1 ? "1 result" : hits.length + " results";
    const few = hits.length > SHOWN ? ", the best " + SHOWN : "";
    said.textContent = !hits.length ? "Nothing mentions it." : all ? count + few : "Nothing has all of these words; " + count + " with some" + few;
    list.replaceChildren(...hits.slice(0, SHOWN).map((number) => item(index.entries[number])));
  }

  form.hidden = false;
  input.addEventListener("focus", load);
  input.addEventListener("input", () => { load(); show(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const first = list.querySelector("a");
    if (first) first.click();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); input.focus(); }
    if (event.key === "Escape" && document.activeElement === input) { input.value = ""; show(); }
  });

  // Tables that can be sorted by their heads.
  function value(row, column) {
    const cell = row.cells[column], by = cell.dataset.by;
    if (by !== undefined) return Number(by);
    const text = cell.textContent.trim();
    return text !== "" && !isNaN(text) ? Number(text) : text.toLowerCase();
  }

  function compare(a, b) {
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1;
  }

  function sort(table, head, column) {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
    rows.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]));
    table.tBodies[0].append(...rows.map((pair) => pair[1]));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, head, column));
    });
  }
})();
