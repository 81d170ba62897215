// Tables that are filled again and again: what has not changed is not replaced, so that a button that is
// pressed meanwhile is the same when it is let go.
import { element } from "./dom.js";

/** A table with a caption; `fill` replaces what has changed. With `keys` a row stays itself elsewhere. */
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
    fill(rows, none, keys = []) {
      const now = rows.map((row) => row.map(text).join("\t")).join("\n");
      if (now === shown && body.firstChild) return;
      shown = now;
      const before = new Map([...body.rows].map((one) => [one.dataset.key, one]));
      const cells = (row) => row.map((cell, index) => element("td", { "data-title": titles[index] }, cell));
      rows.forEach((row, index) => {
        const key = keys[index];
        const line = (key && before.get(key)) || element("tr", { "data-key": key }, ...cells(row));
        [...line.cells].forEach((one, at) => one.textContent !== text(row[at]) && one.replaceChildren(row[at]));
        if (body.rows[index] !== line) body.insertBefore(line, body.rows[index] ?? null);
      });
      while (body.rows.length > rows.length) body.lastChild.remove();
      if (!rows.length) body.append(element("tr", {}, element("td", { colspan: titles.length, class: "none" }, none)));
    },
  };
}
