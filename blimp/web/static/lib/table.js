// Tables that are filled again and again: a button that is pressed is not replaced meanwhile.
import { element } from "./dom.js";

/** A table with a caption; `fill` replaces its rows if they have changed. */
export function table(caption, titles) {
  const body = element("tbody");
  const root = element(
    "div",
    { class: "table-box", tabindex: "0", role: "group", "aria-label": caption },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...titles.map((one) => element("th", { scope: "col" }, one)))),
      body,
    ),
  );
  let shown = "";
  const text = (cell) => (cell instanceof Node ? cell.textContent : String(cell));
  return {
    root,
    fill(rows, none) {
      const now = rows.map((row) => row.map(text).join("\t")).join("\n");
      if (now === shown && body.firstChild) return;
      shown = now;
      const cells = (row) => row.map((cell, index) => element("td", { "data-title": titles[index] }, cell));
      body.replaceChildren(...rows.map((row) => element("tr", {}, ...cells(row))));
      if (!rows.length) body.append(element("tr", {}, element("td", { colspan: titles.length, class: "none" }, none)));
    },
  };
}
