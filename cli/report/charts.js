"use strict";
// Charts as SVG, and the small parts that they share. A chart is a function of its width; it is drawn again when the
// width changes. Its marks can be pointed at, and stepped through with the arrow keys: a line of text below says what
// the mark is.

function html(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function text(x, y, words, attributes) { return svg("text", { x, y, ...attributes }, words); }
function line(x1, y1, x2, y2, kind) { return svg("line", { x1, y1, x2, y2, class: kind }); }
function dot(x, y, kind, r = 4) { return svg("circle", { cx: x, cy: y, r, class: "mark " + kind }); }

function number(value, digits = 3) {
  if (value === 0) return "0";
  return Math.abs(value) >= 1e4 ? Math.round(value).toString() : String(Number(value.toPrecision(digits)));
}
function duration(us) {
  if (us < 1e3) return number(us, 4) + " us";
  return us < 1e6 ? number(us / 1e3, 4) + " ms" : number(us / 1e6, 4) + " s";
}
function clipped(words, width) {
  const most = Math.max(4, Math.floor(width / 6.9));
  return words.length <= most ? words : words.slice(0, most - 1) + "\u2026";
}
function geometricMean(values) {
  return Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
}

// Scales: from numbers to pixels, with the numbers worth a tick.
function linearScale(low, high, from, to) {
  if (low === high) { low -= 1; high += 1; }
  const scale = (value) => from + (value - low) / (high - low) * (to - from);
  scale.ticks = (most) => {
    const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(Number((i * step).toPrecision(12)));
    return ticks;
  };
  return scale;
}
function logScale(low, high, from, to) {
  if (low === high) { low /= 1.1; high *= 1.1; }
  const scale = (value) => from + Math.log(value / low) / Math.log(high / low) * (to - from);
  scale.ticks = (most) => {
    if (high / low < 5) return linearScale(low, high, from, to).ticks(most);
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    for (const [step, factors] of [[1, [1, 2, 5]], [1, [1, 3]], [1, [1]], [2, [1]], [3, [1]], [5, [1]]]) {
      const ticks = [];
      for (let power = Math.ceil(first / step) * step; power <= last; power += step)
        for (const factor of factors) {
          const value = Number((factor * 10 ** power).toPrecision(6));
          if (value >= low && value <= high) ticks.push(value);
        }
      if (ticks.length <= most) return ticks;
    }
    return [];
  };
  return scale;
}
function extent(values, margin = 0.05) {
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * margin;
  return [low - room, high + room];
}
function logExtent(values, margin = 1.15) { return [Math.min(...values) / margin, Math.max(...values) * margin]; }

// Axes of a plot of two numbers. Returns nothing; draws into `out`.
function axes(out, { x, y, left, right, top, bottom, xLabel, yLabel, xTicks = 6, yTicks = 5, xText = number, yText = number }) {
  for (const tick of y.ticks(yTicks))
    out.append(line(left, y(tick), right, y(tick), "grid"), text(left - 8, y(tick) + 4, yText(tick), { "text-anchor": "end", class: "soft" }));
  for (const tick of x.ticks(xTicks))
    out.append(line(x(tick), bottom, x(tick), bottom + 4, "axis"), text(x(tick), bottom + 18, xText(tick), { "text-anchor": "middle", class: "soft" }));
  out.append(line(left, bottom, right, bottom, "axis"));
  out.append(text(right, bottom + 36, xLabel, { "text-anchor": "end", class: "soft" }), text(0, top - 12, yLabel, { class: "soft" }));
}

// A figure. draw(width) returns {height, parts, marks: [{x, y, words}]}.
function figure(title, caption, label, draw) {
  const note = html("p", { class: "note", "aria-live": "polite" });
  const picture = svg("svg", { role: "img", tabindex: "0", "aria-label": label });
  const box = html("figure", {}, picture);
  let marks = [], here = -1, width = 0;
  const show = (index) => {
    here = index;
    picture.querySelectorAll(".here").forEach((ring) => ring.remove());
    note.textContent = here < 0 ? "" : marks[here].words;
    if (here >= 0) picture.append(svg("circle", { cx: marks[here].x, cy: marks[here].y, r: 8, class: "here" }));
  };
  const render = () => {
    const now = Math.floor(box.getBoundingClientRect().width);
    if (now === width || now < 40) return;
    width = now;
    const drawn = draw(width);
    marks = drawn.marks || [];
    picture.replaceChildren(...drawn.parts);
    picture.setAttribute("viewBox", `0 0 ${width} ${drawn.height}`);
    picture.setAttribute("height", drawn.height);
    show(-1);
  };
  picture.addEventListener("pointermove", (event) => {
    const at = picture.getBoundingClientRect(), x = event.clientX - at.left, y = event.clientY - at.top;
    let nearest = -1, least = 30 * 30;
    marks.forEach((mark, index) => {
      const dx = mark.row ? 0 : mark.x - x, dy = mark.y - y, distance = dx * dx + dy * dy;
      if (distance < least) { least = distance; nearest = index; }
    });
    if (nearest !== here) show(nearest);
  });
  picture.addEventListener("pointerleave", () => show(-1));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !marks.length) return;
    event.preventDefault();
    show(((here < 0 && step < 0 ? 0 : here) + step + marks.length) % marks.length);
  });
  const all = html("div", {}, html("h3", {}, title), html("p", { class: "soft" }, caption), box, note);
  new ResizeObserver(() => requestAnimationFrame(render)).observe(box);
  return all;
}
