// Plays a video: what was put in, what is true, what was predicted, and how the slots see it.

const PANELS = { input: "input", true: "true ids", prediction: "prediction", reconstruction: "reconstruction", prior_reconstruction: "prior reconstruction" };
const SHARPNESS = 384; // pixels of the longer side of a panel, at least

const KEYS = [
  ["space", "play, pause"],
  ["← →", "one frame back, on"],
  ["home end", "first, last frame"],
  ["n p", "next, previous event"],
  ["↑ ↓", "previous, next video"],
  ["1 … 9", "hide or show a slot"],
  ["0", "show all slots"],
  ["+ −", "overlay stronger, weaker"],
  ["b", "boundaries"],
  ["?", "these keys"],
];

class Viewer {
  constructor(videos) {
    this.videos = videos;
    this.number = -1;
    this.frame = 0;
    this.hidden = new Set();
    this.under = null;
    this.ready = false;
    this.timer = null;
    this.timeline = new Timeline(byId("strip"), (frame) => this.seek(frame), () => this);
    const begin = sharedBeginning(videos.map((video) => video.name));
    byId("chooser").append(...videos.map((video, number) => this.choice(video, number, video.name.slice(begin))));
    byId("keys").append(...KEYS.map(([keys, does]) =>
      element("div", {}, element("dt", {}, ...keys.split(" ").map((key) => (key === "…" ? " … " : element("kbd", {}, key)))), element("dd", {}, does))));
    byId("play").addEventListener("click", () => this.play(this.timer === null));
    byId("frame").addEventListener("input", () => this.seek(+byId("frame").value));
    byId("speed").addEventListener("change", () => this.timer !== null && this.play(true));
    for (const id of ["opacity", "boundaries"]) byId(id).addEventListener("input", () => this.draw());
    byId("help").addEventListener("click", () => {
      byId("keys").hidden = !byId("keys").hidden;
      byId("help").setAttribute("aria-expanded", String(!byId("keys").hidden));
    });
    document.addEventListener("keydown", (event) => this.press(event));
    document.addEventListener("click", (event) => {
      if (event.detail) event.target.closest("button, [type=checkbox]")?.blur(); // after the mouse, space plays again
    });
    byId("viewer").hidden = false;
  }

  get video() {
    return this.videos[this.number];
  }

  /** The slot under the mouse, of which more is seen than of the others. */
  get pointed() {
    return this.hidden.has(this.under) ? null : this.under;
  }

  choice(video, number, label) {
    const thumbnail = element("canvas", { width: video.width, height: video.height });
    picture(video.sheets.input).then((sheet) => thumbnail.getContext("2d").drawImage(sheet, 0, 0));
    const beside = video.scores ? element("span", { class: "soft" }, `FG-ARI ${percent(video.scores.fg_ari)}`) : "";
    return element("button", { type: "button", class: "choice", role: "tab", title: video.name, onclick: () => this.choose(number) },
      thumbnail, element("span", {}, ending(label, 11)), beside);
  }

  async choose(number) {
    this.number = number;
    this.ready = false;
    const video = this.video;
    [...byId("chooser").children].forEach((choice, i) => choice.setAttribute("aria-selected", String(i === number)));
    const images = Object.entries(video.sheets).map(async ([name, url]) => [name, await picture(url)]);
    this.sheets = Object.fromEntries(await Promise.all(images));
    this.ids = await inflated(video.ids);
    this.trueIds = video.trueIds ? await inflated(video.trueIds) : null;
    if (this.video !== video) return; // another was chosen meanwhile
    this.hidden.clear();
    this.colours = video.colours.map(channels);
    this.trueColours = (video.trueColours ?? []).map(channels);
    this.canvases = Object.fromEntries(Object.keys(PANELS).filter((kind) => this.has(kind)).map((kind) => [kind, this.canvas(kind)]));
    byId("panels").replaceChildren(...Object.entries(this.canvases).map(([kind, canvas]) =>
      element("figure", { class: "panel" }, element("figcaption", {}, PANELS[kind]), canvas)));
    byId("slots").replaceChildren(...video.colours.map((colour, slot) => this.chip(colour, slot)));
    byId("frame").max = video.frames - 1;
    byId("legend").textContent = legend(video);
    this.events = [...new Set((video.objects ?? []).flatMap((object) => [...object.switches, ...object.fragmented.map(([first]) => first)]))].sort((a, b) => a - b);
    this.ready = true;
    this.timeline.show(video);
    this.seek(Math.min(this.frame, video.frames - 1));
  }

  has(kind) {
    return kind === "prediction" || (kind === "true" ? this.trueIds !== null : kind in this.sheets);
  }

  canvas(kind) {
    const { width, height } = this.video;
    const scale = Math.max(1, Math.ceil(SHARPNESS / Math.max(width, height)));
    return element("canvas", { width: width * scale, height: height * scale, role: "img", "aria-label": PANELS[kind] });
  }

  chip(colour, slot) {
    const point = (at) => (event) => {
      this.under = event.pointerType === "mouse" ? at : null; // a finger leaves nothing behind
      this.draw();
    };
    return element("button", {
      type: "button", class: "slot", "aria-pressed": "true", "--colour": colour, title: "click: hide or show; double-click: only this one",
      onclick: () => this.toggle(slot), ondblclick: () => this.only(slot), onpointerenter: point(slot), onpointerleave: point(null),
    }, element("i"), `slot ${slot + 1}`);
  }

  // ---- what one can do ----

  seek(frame) {
    if (!this.ready) return;
    this.frame = frame;
    byId("frame").value = frame;
    this.draw();
  }

  play(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.seek((this.frame + 1) % this.video.frames), 1000 / +byId("speed").value) : null;
    byId("play").textContent = on ? "❚❚" : "▶";
    byId("play").setAttribute("aria-label", on ? "Pause" : "Play");
    byId("play").setAttribute("aria-pressed", String(on));
  }

  toggle(slot) {
    if (!this.hidden.delete(slot)) this.hidden.add(slot);
    this.draw();
  }

  only(slot) {
    this.hidden = new Set(this.video.colours.keys());
    this.hidden.delete(slot);
    this.draw();
  }

  press(event) {
    if (!this.ready || event.ctrlKey || event.metaKey || event.altKey) return;
    const kind = event.target.tagName === "INPUT" ? event.target.type : event.target.tagName;
    const { frames } = this.video, last = this.videos.length - 1;
    const after = this.events.find((time) => time > this.frame), before = this.events.findLast((time) => time < this.frame);
    const stronger = (by) => {
      byId("opacity").value = +byId("opacity").value + by;
      this.draw();
    };
    const actions = {
      " ": () => this.play(this.timer === null),
      ArrowLeft: () => this.seek(Math.max(0, this.frame - 1)),
      ArrowRight: () => this.seek(Math.min(frames - 1, this.frame + 1)),
      Home: () => this.seek(0),
      End: () => this.seek(frames - 1),
      ArrowUp: () => this.choose(Math.max(0, this.number - 1)),
      ArrowDown: () => this.choose(Math.min(last, this.number + 1)),
      n: () => this.seek(after ?? this.frame),
      p: () => this.seek(before ?? this.frame),
      b: () => byId("boundaries").click(),
      "?": () => byId("help").click(),
      "+": () => stronger(10),
      "-": () => stronger(-10),
      0: () => {
        this.hidden.clear();
        this.draw();
      },
    };
    const slot = /^[1-9]$/.test(event.key) ? +event.key - 1 : null;
    const action = actions[event.key] ?? (slot !== null && slot < this.video.slots ? () => this.toggle(slot) : null);
    const theirs = kind === "SELECT" || (kind === "range" && /^(Arrow|Home|End)/.test(event.key)) || (event.key === " " && ["BUTTON", "SUMMARY", "checkbox"].includes(kind));
    if (!action || theirs) return;
    event.preventDefault();
    action();
  }

  // ---- what one sees ----

  draw() {
    if (!this.ready) return;
    const opacity = +byId("opacity").value / 100;
    for (const kind of ["input", "reconstruction", "prior_reconstruction"]) {
      if (this.canvases[kind]) this.paint(this.canvases[kind], this.sheets[kind]);
    }
    const visible = (id) => id > 0 && !this.hidden.has(id - 1);
    const strength = (id) => (this.pointed === null || this.pointed === id - 1 ? opacity : opacity / 4);
    this.overlay(this.canvases.prediction, this.ids, this.colours, visible, strength);
    if (this.trueIds) this.overlay(this.canvases.true, this.trueIds, this.trueColours, (id) => id > 0, () => opacity);
    [...byId("slots").children].forEach((chip, slot) => chip.setAttribute("aria-pressed", String(!this.hidden.has(slot))));
    byId("clock").textContent = `${this.frame + 1} / ${this.video.frames}`;
    byId("frame").setAttribute("aria-valuetext", `frame ${this.frame + 1} of ${this.video.frames}`);
    byId("event").replaceChildren(...this.happenings());
    this.timeline.update();
  }

  /** One frame of a sheet; the greyer it is, the purer are colours laid over it. */
  paint(canvas, sheet, grey = 0) {
    const { width, height, columns } = this.video;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.filter = `grayscale(${grey})`;
    const left = (this.frame % columns) * width, top = Math.floor(this.frame / columns) * height;
    context.drawImage(sheet, left, top, width, height, 0, 0, canvas.width, canvas.height);
    context.filter = "none";
    return context;
  }

  /** The input with segments over it, and white lines where visible ones end. */
  overlay(canvas, ids, colours, visible, strength) {
    const { width, height } = this.video;
    const context = this.paint(canvas, this.sheets.input, Math.min(1, +byId("opacity").value / 50));
    const shown = ids.subarray(this.frame * width * height, (this.frame + 1) * width * height).map((id) => (visible(id) ? id : 0));
    const tint = new ImageData(width, height);
    shown.forEach((id, i) => id && tint.data.set([...colours[id - 1], 255 * strength(id)], 4 * i));
    this.small ??= element("canvas");
    Object.assign(this.small, { width, height });
    this.small.getContext("2d").putImageData(tint, 0, 0);
    context.drawImage(this.small, 0, 0, canvas.width, canvas.height);
    if (byId("boundaries").checked) outline(context, shown, width, height, canvas.width / width);
  }

  happenings() {
    const said = (this.video.objects ?? []).flatMap((object) => {
      const holder = object.holders[this.frame], share = object.fragments[this.frame].toFixed(1);
      return [
        ...(object.switches.includes(this.frame) ? [`object ${object.name} goes to slot ${holder}`] : []),
        ...(object.fragmented.some(([first, last]) => first <= this.frame && this.frame <= last) ? [`object ${object.name} is shared by ${share} slots`] : []),
      ];
    });
    return said.length ? [element("b", {}, "here: "), said.join("; ")] : [];
  }
}

/** How many letters of the names tell nothing, for all begin with them: whole words only. */
function sharedBeginning(names) {
  const [first] = names;
  let length = names.length > 1 ? first.split("").findIndex((letter, i) => names.some((name) => name[i] !== letter)) : 0;
  while (length > 0 && /[\p{L}\p{N}]/u.test(first[length - 1])) length--;
  return Math.max(0, length);
}

const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

function outline(context, ids, width, height, scale) {
  context.beginPath();
  for (let y = 0, i = 0; y < height; y++) {
    for (let x = 0; x < width; x++, i++) {
      if (x + 1 < width && ids[i] !== ids[i + 1]) {
        context.moveTo((x + 1) * scale, y * scale);
        context.lineTo((x + 1) * scale, (y + 1) * scale);
      }
      if (y + 1 < height && ids[i] !== ids[i + width]) {
        context.moveTo(x * scale, (y + 1) * scale);
        context.lineTo((x + 1) * scale, (y + 1) * scale);
      }
    }
  }
  context.strokeStyle = "white";
  context.lineWidth = 2;
  context.lineCap = "square";
  context.stroke();
}

function legend(video) {
  const parts = video.divergence ? ["The curves say how much each slot surprises at each frame."] : [];
  if (video.objects) {
    parts.push("Each row is a true object, in the colour of the slot that holds it: ◆ marks a switch to another slot, the bar below it that several slots share it.");
  }
  return parts.join(" ");
}
