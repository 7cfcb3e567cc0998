// What lies above a timeline: the cursor, what each worker holds then, and the gradient pointed at.

class Hover {
  constructor(panel, player, clock) {
    Object.assign(this, { panel, player, clock, found: -1 });
    this.tip = el("div", { class: "tip", role: "status", hidden: "" });
    panel.stack.append(this.tip);
    const canvas = panel.above;
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.leave());
    listenToMoves(canvas, panel.view, player);
  }

  leave() {
    this.found = -1;
    this.tip.hidden = true;
    this.draw();
  }

  point(event) {
    const { panel } = this;
    const [x, y] = [event.offsetX, event.offsetY];
    const time = panel.view.time(x);
    const worker = Math.floor((y - panel.top) / panel.laneHeight);
    const inside = worker >= 0 && worker < panel.lanes.workers && x >= GUTTER.left;
    const words = inside && time <= panel.view.to ? this.words(worker, time) : this.shardWords(y, time);
    this.tip.hidden = !words;
    if (words) this.showTip(words, x, y);
    this.draw();
  }

  words(worker, time) {
    const { lanes } = this.panel;
    const unit = this.clock.unit;
    this.found = lanes.at(worker, time);
    if (this.found >= 0) {
      const [from, to] = [lanes.start[this.found], lanes.stop[this.found]].map(timeText);
      return [...lanes.story(this.found), `from ${from} to ${to} ${unit}`];
    }
    if (time > lanes.end) return ["the run has ended"];
    if (lanes.isAway(worker, time)) return [`worker ${worker}: away`];
    const before = lanes.lastBegun(worker, time);
    const since = before < 0 ? 0 : lanes.stop[before];
    return [`worker ${worker}: waiting since ${timeText(since)} ${unit}`];
  }

  shardWords(y, time) {
    const { lanes, shardHeight, view } = this.panel;
    this.found = -1;
    const shard = Math.floor(y / shardHeight);
    if (shard < 0 || shard >= lanes.shards || time < view.from || time > view.to) return null;
    return [`shard ${shard}: version ${lanes.version(shard, time)}`];
  }

  showTip(words, x, y) {
    const [first, ...more] = words;
    this.tip.style.left = "0"; // so that it is as wide as it likes
    this.tip.replaceChildren(el("b", {}, first), ...more.map((line) => el("div", {}, line)));
    const width = this.tip.offsetWidth;
    this.tip.style.left = `${clamp(x + 14, 4, Math.max(4, this.panel.width - width - 4))}px`;
    this.tip.style.top = `${y + 18}px`;
  }

  draw() {
    const { panel } = this;
    const context = surface(panel.above, panel.width, panel.height);
    if (!context) return;
    context.font = FONT;
    this.drawHeld(context);
    context.save();
    context.beginPath();
    context.rect(GUTTER.left - 4, 0, panel.view.width + 8, panel.height);
    context.clip();
    this.drawCursor(context);
    if (this.found >= 0) this.drawArrows(context, this.found);
    context.restore();
  }

  drawCursor(context) {
    const x = this.panel.view.x(this.player.time);
    context.fillStyle = theme.colour("cursor");
    context.fillRect(x - 0.75, 0, 1.5, this.panel.height);
  }

  // Beside each lane: the version held at the cursor, and how far behind it is.
  drawHeld(context) {
    const { panel, player } = this;
    const { lanes, scale } = panel;
    const left = panel.width - GUTTER.right + 8;
    const [text, faint] = [theme.colour("text"), theme.colour("faint")];
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = text;
    if (panel.shardHeight > 8) {
      for (let s = 0; s < lanes.shards; s++) {
        const now = `now ${grouped(lanes.version(s, player.time))}`;
        context.fillText(now, left, (s + 0.5) * panel.shardHeight);
      }
    }
    for (let w = 0; w < lanes.workers; w++) {
      if (lanes.isAway(w, player.time)) continue;
      const { version, behind } = lanes.held(w, player.time);
      const y = panel.laneTop(w);
      context.fillStyle = scale.colour(behind);
      if (panel.laneHeight < 11) {
        const long = (behind / Math.max(1, scale.most)) * (GUTTER.right - 16);
        context.fillRect(left, y, clamp(long, 1, GUTTER.right - 12), panel.boxHeight);
        continue;
      }
      context.fillRect(left, y + 3, 4, panel.laneHeight - 6);
      context.fillStyle = text;
      context.fillText(grouped(version), left + 9, y + panel.laneHeight / 2);
      context.fillStyle = faint;
      context.textAlign = "right";
      const far = behind ? `−${grouped(behind)}` : "";
      context.fillText(far, panel.width - 6, y + panel.laneHeight / 2);
      context.textAlign = "left";
    }
  }

  // Down from the version that it read, and up to the one that it was pushed at.
  drawArrows(context, i) {
    const { panel } = this;
    const { lanes, view } = panel;
    const [x0, x1] = [view.x(lanes.start[i]), view.x(lanes.stop[i])];
    const y = panel.laneTop(lanes.worker[i]);
    context.strokeStyle = theme.colour("text");
    context.lineWidth = 1.5;
    context.strokeRect(x0, y + 0.5, Math.max(2, x1 - x0), panel.laneHeight - 1);
    for (let shard = 0; shard < Math.min(lanes.shards, 8); shard++) {
      const from = (shard + 1) * panel.shardHeight - 2;
      const named = (word) => (shard ? "" : word); // once is enough
      arrow(context, view.x(lanes.pulledFrom(i, shard)), from, x0, y, theme.colour("pull"), named("pull"));
      const push = lanes.push(i, shard);
      if (!push || push.reason === "merged") continue;
      const colour = theme.colour(push.reason === undefined ? "push" : "dropped");
      const word = push.reason === undefined ? "push" : push.reason === "interrupted" ? push.reason : "dropped";
      arrow(context, x1, y, view.x(push.time), from, colour, named(word));
    }
  }
}

function arrow(context, x0, y0, x1, y1, colour, word) {
  // Leaves and arrives upright, so that arrows of one moment can be told apart.
  const bend = (y1 - y0) * 0.45;
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
  context.stroke();
  const up = Math.sign(y0 - y1) * 7;
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 4, y1 + up);
  context.lineTo(x1 + 4, y1 + up);
  context.fill();
  context.font = `600 ${FONT}`;
  context.textAlign = word === "pull" ? "right" : "left";
  const shift = word === "pull" ? -7 : 7;
  const [x, y] = [(x0 + x1) / 2 + shift, (y0 + y1) / 2];
  context.lineWidth = 4;
  context.strokeStyle = theme.colour("card");
  context.strokeText(word, x, y);
  context.fillText(word, x, y);
}

// Drag to pan, ctrl and wheel or a pinch to zoom, click to set the cursor; keys do the same.
function listenToMoves(canvas, view, player) {
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.offsetX, from: view.from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const by = event.offsetX - held.x;
    held.moved ||= Math.abs(by) > 3;
    if (held.moved) view.show(held.from - (by / view.width) * view.span, view.span);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held && !held.moved) player.go(view.time(event.offsetX));
    held = null;
  });
  canvas.addEventListener("pointercancel", () => (held = null));
  canvas.addEventListener("dblclick", (event) => view.zoom(2.5, view.time(event.offsetX)));
  canvas.addEventListener(
    "wheel",
    (event) => {
      const level = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : level;
      if (event.ctrlKey || event.metaKey || event.altKey) {
        view.zoom(Math.exp(-event.deltaY * 0.004), view.time(event.offsetX));
      } else if (sideways) {
        view.pan((sideways / view.width) * view.span);
      } else return; // the page scrolls
      event.preventDefault();
    },
    { passive: false },
  );
  const keys = {
    ArrowLeft: () => view.pan(-view.span / 10),
    ArrowRight: () => view.pan(view.span / 10),
    "+": () => view.zoom(1.5),
    "=": () => view.zoom(1.5),
    "-": () => view.zoom(1 / 1.5),
    0: () => view.all(),
    " ": () => player.toggle(),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || !(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
  });
}
