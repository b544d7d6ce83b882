// Our scores with everybody else's beside them.

const HEADLINES = ["fg_ari", "miou"];

function showScores({ names, methods }, verdict) {
  const model = methods.find((method) => method.kind === "model");
  if (!model) return;
  const headlines = names.filter((name) => HEADLINES.includes(name.key));
  byId("headlines").append(...headlines.map((name) => headline(name, model, methods)));
  byId("verdict").textContent = verdict && `${verdict[0].toUpperCase()}${verdict.slice(1)}.`;
  byId("bars").append(...headlines.map((name) => bars(name, methods)));
  byId("table").append(table(names, methods));
  byId("scores").hidden = false;
}

function headline(name, model, methods) {
  const spread = model.std[name.key];
  const best = bestOf(methods.filter((method) => method.kind === "trivial"), name.key);
  const beside = best ? `${name.label} · best without learning: ${plainName(best)} ${percent(best.scores[name.key])}` : name.label;
  const value = element("b", {}, percent(model.scores[name.key]), ...(spread ? [element("small", {}, ` ± ${percent(spread)}`)] : []));
  return element("div", { class: "headline" }, value, element("span", {}, beside));
}

function bestOf(methods, key) {
  return methods.reduce((best, method) => (best && best.scores[key] >= method.scores[key] ? best : method), null);
}

/** Of a method without learning, where it is said otherwise that it does not learn. */
function plainName(method) {
  return method.name.replace(" (no learning)", "");
}

function bars(name, methods) {
  const rows = methods.filter((method) => name.key in method.scores).map((method) => {
    const value = method.scores[name.key], spread = method.std[name.key];
    return element("div", { class: `bar ${method.kind}`, title: method.note || null },
      element("span", { class: "name" }, method.name),
      element("span", { class: "groove" }, element("i", { "--share": `${Math.max(0, 100 * value)}%` })),
      element("span", { class: "value" }, spread ? `${percent(value)} ± ${percent(spread)}` : percent(value)));
  });
  const notes = [...new Set(methods.map((method) => method.note).filter(Boolean))];
  return element("div", { class: "card" }, element("h3", {}, name.label), ...rows,
    ...notes.map((note) => element("p", { class: "soft small" }, note)));
}

function table(names, methods) {
  const head = element("tr", {}, element("th", {}, "percent, except counts"),
    ...methods.map((method) => element("th", { scope: "col" }, method.name)));
  const rows = names.map((name) => {
    const arrow = { more: " ↑", less: " ↓", "": "" }[name.better];
    const cells = methods.map((method) => {
      const value = method.scores[name.key];
      return element("td", { class: method.kind }, value === undefined ? "" : written(name, value));
    });
    return element("tr", {}, element("th", { scope: "row" }, name.label + arrow), ...cells);
  });
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}
