// What is wrong with a page as it is laid out now, a line each. What has a scroll bar of its own, or the
// window's, may be out of sight; nothing may be out of reach, cut, covered or too small.
([width, limits]) => {
  if (innerWidth !== width) return [`${innerWidth} px wide still`];
  const found = [];
  const name = (one) => one?.dataset?.testid || one?.id || one?.className || one?.tagName;
  const wrong = (one, what) => found.push(`${name(one)} "${one.textContent.trim().slice(0, 40)}": ${what}`);
  const shown = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility());
  const box = (one) => one.getBoundingClientRect();
  const controls = shown("button, input, select, summary, a[href]");
  const isText = (node) => node.nodeType === Node.TEXT_NODE && node.data.trim();
  const texts = shown("body *").filter((one) => [...one.childNodes].some(isText));
  const wide_px = document.documentElement.scrollWidth - innerWidth;
  if (wide_px > 0) found.push(`the page is ${wide_px} px too wide`);

  for (const one of new Set([...controls, ...texts])) {
    const ends = { x: ["left", "right"], y: ["top", "bottom"] };
    for (let outer = one.parentElement; outer !== document.body; outer = outer.parentElement) {
      for (const [axis, [from, to]] of Object.entries(ends)) {
        const overflow = getComputedStyle(outer)[`overflow-${axis}`];
        if (["auto", "scroll"].includes(overflow)) delete ends[axis];
        else if (overflow !== "hidden" && !outer.matches("section, header, dialog")) continue;
        else if (box(one)[from] < box(outer)[from] - 1 || box(one)[to] > box(outer)[to] + 1) {
          wrong(one, `reaches out of ${name(outer)} at its ${from} or ${to}`);
        }
      }
    }
    const isCut = getComputedStyle(one).overflowX === "hidden" && one.scrollWidth > one.clientWidth + 1;
    if (isCut) wrong(one, "cut");
  }
  for (const one of texts) {
    const px = parseFloat(getComputedStyle(one).fontSize);
    if (px < limits.text) wrong(one, `${px} px of text`);
  }
  for (const { clientWidth, clientHeight } of shown("[data-testid=map]")) {
    if (Math.min(clientWidth, clientHeight) < limits.map) found.push(`map: ${clientWidth} x ${clientHeight} px`);
  }
  const parts = shown("section.panel, header, #words, #replay, #lost, #stop-answer");
  parts.forEach((one, index) => {
    for (const other of parts.slice(index + 1)) {
      if ([one, other].some((part) => part.matches("[data-view=present] > .scene"))) continue; // they lie on it
      const [a, b] = [box(one), box(other)];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 1) wrong(one, `overlaps ${name(other)}`);
    }
  });
  // Brought into sight, a control is what is touched in its middle; a card above it can be closed.
  const stop = document.getElementById("estop");
  for (const one of controls) {
    one.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    const target = one.closest("label.tick") ?? one;
    const { left, right, top, bottom } = box(target);
    const isLow = innerWidth <= limits.fingers && bottom - top < limits.control - 0.5;
    if (isLow) wrong(one, `${bottom - top} px high`);
    const isOut = left < -1 || top < -1 || right > innerWidth + 1 || bottom > innerHeight + 1;
    if (isOut) wrong(one, "out of reach");
    const touched = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    const card = touched?.closest("dialog");
    if (!target.contains(touched) && (!card || card.contains(one))) wrong(one, `under ${name(touched)}`);
    const isStopAway = stop.checkVisibility() && (box(stop).top < 0 || box(stop).bottom > innerHeight);
    if (isStopAway) wrong(one, "in sight without the emergency stop");
  }
  window.scrollTo(0, 0);
  return found;
};
