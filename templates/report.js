"use strict";
// A link opens the folds around its place, and printing opens all. Without this script all stays readable.
(() => {
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
