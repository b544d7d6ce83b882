// Line charts with an axis below, a few lines across, and the value under the pointer in the title.

/** Round numbers from low to high, about as many as wanted. */
function ticks(low, high, wanted = 4) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(+at.toPrecision(12));
  return found;
}

/** The powers of ten between, with halves if there are few. */
function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) found.push(10 ** power);
  const within = found.filter((value) => value >= low && value <= high);
  return within.length > 1 ? within : [low, high];
}

const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");

/** `series`: name, colour, points (x, y), dotted (one point, and the line goes across). `range`: of y, else that of the points. */
function lineChart(title, series, { range = null, format = short, unit = "update" } = {}) {
  const readout = element("span", { class: "readout" });
  const box = element("div", { class: "chart" });
  const keys = series.length > 1 ? series.map(chartKey) : [];
  const card = element("div", { class: "card" }, element("h3", {}, title, readout), box, ...keys);
  const values = series.flatMap((one) => one.points.map((point) => point[1]));
  const [low, high] = range ?? [Math.min(...values), Math.max(...values)];
  const logarithmic = !range && low > 0 && high / low > 30;
  const last = Math.max(...series.flatMap((one) => one.points.map((point) => point[0])));

  function draw() {
    const width = box.clientWidth || 300, height = 150, left = 44, bottom = 22, right = 8, top = 6;
    const scale = logarithmic ? Math.log : (value) => value;
    const span = scale(high) - scale(low) || 1;
    const x = (value) => left + ((width - left - right) * value) / (last || 1);
    const y = (value) => height - bottom - ((height - bottom - top) * (scale(value) - scale(low))) / span;
    const lines = (logarithmic ? logTicks(low, high) : ticks(low, high)).flatMap((value) => [
      drawn("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      drawn("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)),
    ]);
    const below = ticks(0, last, 3).map((value) =>
      drawn("text", { x: x(value), y: height - 5, "text-anchor": value === 0 ? "start" : "middle" }, short(value)));
    const curves = series.map((one) => {
      const [[u0, v0]] = one.points;
      if (one.points.length === 1 && !one.dotted) return drawn("circle", { cx: x(u0), cy: y(v0), r: 3.5, fill: one.colour });
      const points = one.dotted ? [[0, v0], [last, v0]] : one.points;
      const dash = one.dotted ? "2 4" : null;
      return drawn("path", { class: "curve", d: path(points.map(([u, v]) => [x(u), y(v)])), stroke: one.colour, "stroke-dasharray": dash });
    });
    const pointer = drawn("line", { class: "playhead", y1: top, y2: height - bottom, visibility: "hidden" });
    const canvas = drawn("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
      ...lines, ...below, ...curves, pointer);
    canvas.addEventListener("pointermove", (event) => {
      const at = ((event.offsetX - left) / (width - left - right)) * last;
      const solid = series.filter((one) => !one.dotted);
      const nearest = solid[0].points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
      pointer.setAttribute("x1", x(nearest[0]));
      pointer.setAttribute("x2", x(nearest[0]));
      pointer.setAttribute("visibility", "visible");
      const said = solid.map((one) => format((one.points.find((point) => point[0] === nearest[0]) ?? nearest)[1]));
      readout.textContent = `${said.join(" · ")} at ${unit} ${nearest[0]}`;
    });
    canvas.addEventListener("pointerleave", () => {
      pointer.setAttribute("visibility", "hidden");
      readout.textContent = "";
    });
    box.replaceChildren(canvas);
  }
  new ResizeObserver(draw).observe(box);
  return card;
}

function chartKey(one) {
  return element("span", { class: one.dotted ? "key dotted" : "key", "--colour": one.colour }, element("i"), one.name);
}

function showCurves({ losses, scores }, methods) {
  const trivial = methods.filter((method) => method.kind === "trivial");
  const panels = [];
  const shown = { fg_ari: ["FG-ARI", "var(--accent)"], miou: ["mIoU", "var(--warn)"] };
  const series = Object.entries(shown).filter(([key]) => scores[key]).flatMap(([key, [name, colour]]) => {
    const best = bestOf(trivial, key);
    const solid = { name, colour, points: scores[key] };
    if (!best) return [solid];
    const said = `${name} of ${plainName(best)}, the best without learning`;
    return [solid, { name: said, colour, dotted: true, points: [[0, best.scores[key]]] }];
  });
  if (series.length) panels.push(lineChart("scores while learning", series, { range: [0, 1], format: (value) => (100 * value).toFixed(0) }));
  for (const [name, points] of Object.entries(losses)) {
    panels.push(lineChart(`loss: ${name}`, [{ name, colour: "var(--accent)", points }]));
  }
  byId("curves").append(...panels);
  byId("learning").hidden = panels.length === 0;
}
