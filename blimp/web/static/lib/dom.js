// Elements are made here and nowhere else. Text only ever becomes text: what a ship, a pilot or a
// mission is called may contain markup.

const LEAST_PX = 12; // --least of base.css

/** Make an element. `properties` are attributes; `on` has listeners; children are nodes or text. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (key === "class") {
      made.className = value;
    } else if (key in made && typeof value === "boolean") {
      made[key] = value;
    } else if (value !== undefined && value !== null) {
      made.setAttribute(key, value);
    }
  }
  made.append(...children.map((one) => (one instanceof Node ? one : String(one))));
  return made;
}

/** Set an element's text, if it is another: a reader of the page is not told the same twice. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Fit a canvas to its box on the screen; return its 2-D context in CSS pixels, and its size. */
export function canvasOf(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return { context, width, height };
}

/** The size of small text in a picture, in CSS pixels: it grows with the page's. */
export function textPx() {
  const style = getComputedStyle(document.documentElement);
  const least = document.body.classList.contains("stage") ? 1 : 0.75;
  return Math.max(LEAST_PX, least * parseFloat(style.fontSize));
}
