// Puts the page together.

const DATA = JSON.parse(byId("data").textContent);

byId("title").textContent = DATA.title;
byId("summary").textContent = DATA.summary;
byId("facts").append(...Object.entries(DATA.facts).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
showScores(DATA.scores, DATA.verdict);
showCurves(DATA.curves, DATA.scores.methods);
const viewer = DATA.videos.length ? new Viewer(DATA.videos) : null;
viewer?.choose(0);
