// Below the slider, on the same axis of time: how much each slot surprises, and who holds each object.

const LANE = 20, RIBBON = 9, CHART = 110;

class Timeline {
  /** `seek`: called with a frame. `look`: how the viewer looks now (frame, hidden slots, the slot under the pointer). */
  constructor(box, seek, look) {
    this.box = box;
    this.look = look;
    this.video = null;
    this.playhead = null;
    const drag = (event) => this.video && event.buttons && seek(this.frameAt(event.clientX));
    box.addEventListener("pointerdown", (event) => {
      box.setPointerCapture(event.pointerId);
      drag(event);
    });
    box.addEventListener("pointermove", drag);
    new ResizeObserver(() => this.video && this.draw()).observe(box);
  }

  show(video) {
    this.video = video;
    this.draw();
  }

  get gutter() {
    return parseFloat(getComputedStyle(document.querySelector(".track")).paddingLeft);
  }

  /** The thumb of the slider stays within it by half its width, and so do all marks. */
  x(frame) {
    const inset = 8, last = Math.max(1, this.video.frames - 1);
    return this.gutter + inset + ((this.box.clientWidth - this.gutter - 2 * inset) * frame) / last;
  }

  frameAt(clientX) {
    const from = this.x(0), to = this.x(Math.max(1, this.video.frames - 1));
    const share = (clientX - this.box.getBoundingClientRect().left - from) / (to - from);
    return Math.round(Math.min(1, Math.max(0, share)) * (this.video.frames - 1));
  }

  draw() {
    if (this.box.clientWidth < 2 * this.gutter) return; // not laid out yet: drawn when it is
    const { divergence, objects = [] } = this.video;
    const top = divergence ? CHART + 26 : 6;
    const height = top + objects.length * LANE;
    this.curves = divergence ? divergence.map((values, slot) => this.curve(values, slot)) : [];
    this.playhead = drawn("line", { class: "playhead", y1: 0, y2: height });
    const parts = [
      ...(divergence ? this.axes() : []),
      ...this.curves,
      ...objects.flatMap((object, row) => this.lane(object, top + row * LANE)),
      this.playhead,
    ];
    const width = this.box.clientWidth;
    this.box.replaceChildren(drawn("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Timeline" }, ...parts));
    this.update();
  }

  /** Only what changes from frame to frame. */
  update() {
    if (!this.playhead) return;
    const { frame, hidden, pointed } = this.look();
    this.playhead.setAttribute("x1", this.x(frame));
    this.playhead.setAttribute("x2", this.x(frame));
    this.curves.forEach((curve, slot) => {
      curve.setAttribute("visibility", hidden.has(slot) ? "hidden" : "visible");
      curve.classList.toggle("faint", pointed !== null && pointed !== slot);
    });
  }

  get highest() {
    return Math.max(1e-9, ...this.video.divergence.flat());
  }

  y(value) {
    return CHART - ((CHART - 14) * value) / this.highest;
  }

  axes() {
    const right = this.box.clientWidth, left = this.gutter;
    const values = ticks(0, this.highest, 3).flatMap((value) => [
      drawn("line", { class: "axis", x1: left, x2: right, y1: this.y(value), y2: this.y(value) }),
      drawn("text", { x: left - 6, y: this.y(value) + 4, "text-anchor": "end" }, short(value)),
    ]);
    const times = ticks(0, this.video.frames - 1, 6).filter(Number.isInteger);
    return [
      ...values,
      drawn("text", { x: left + 16, y: 8 }, "KLD of each slot / D"), // beside the playhead of the first frame
      ...times.map((time) => drawn("text", { x: this.x(time), y: CHART + 15, "text-anchor": "middle" }, time + 1)),
    ];
  }

  curve(values, slot) {
    const points = values.map((value, time) => [this.x(time), this.y(value)]);
    return drawn("path", { class: "curve", d: path(points), stroke: this.video.colours[slot] },
      drawn("title", {}, `slot ${slot + 1}`));
  }

  /** A ribbon in the colour of the slot that holds the object; ◆ where that changes; a bar below where it is shared. */
  lane(object, top) {
    const half = (this.x(1) - this.x(0)) / 2;
    const from = (time) => Math.max(this.gutter, this.x(time) - half), to = (time) => Math.min(this.box.clientWidth, this.x(time) + half);
    const colour = this.video.trueColours[object.number - 1];
    const label = [
      drawn("rect", { x: this.gutter - 20, y: top + 1, width: 12, height: RIBBON + 2, rx: 3, fill: colour }),
      drawn("text", { x: this.gutter - 26, y: top + RIBBON + 1, "text-anchor": "end" }, object.name),
    ];
    const cells = object.holders.map((holder, time) => drawn("rect", {
      x: from(time), y: top + 2, width: to(time) - from(time) + 0.5, height: RIBBON,
      ...(holder ? { fill: this.video.colours[holder - 1] } : { class: "absent" }),
    }));
    const shared = object.fragmented.map(([first, last]) => drawn("rect", {
      class: "fragmented", x: from(first), y: top + RIBBON + 4, width: to(last) - from(first), height: 3, rx: 1.5,
    }, drawn("title", {}, `shared by several slots, frames ${first + 1} to ${last + 1}`)));
    const switches = object.switches.map((time) => {
      const x = this.x(time) - half, y = top + 2 + RIBBON / 2;
      return drawn("path", { class: "switch", d: `M${x},${y - 6}l5,6l-5,6l-5,-6z` }, drawn("title", {}, `identity switch, frame ${time + 1}`));
    });
    return [...label, ...cells, ...shared, ...switches];
  }
}
