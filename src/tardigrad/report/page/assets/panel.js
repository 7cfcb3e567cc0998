// One run's timeline: a lane per shard with its versions, a lane per worker with its gradients.

const FONT = "11px system-ui, sans-serif";
const NARROW = 3; // pixels: what is narrower is drawn together with its neighbours

class Panel {
  constructor(lanes, label, view, scale) {
    Object.assign(this, { lanes, label, view, scale });
    this.below = el("canvas", { class: "below" });
    this.above = el("canvas", { class: "above", tabindex: "0" });
    this.above.setAttribute("aria-label", `timeline of ${label}`);
    this.stack = el("div", { class: "stack" }, this.below, this.above);
  }

  // Lanes as high as there is room for.
  layOut(width, room) {
    this.width = width;
    this.shardHeight = this.lanes.shards <= 4 ? 20 : 8;
    this.top = this.lanes.shards * this.shardHeight + 6;
    this.laneHeight = clamp(Math.floor((room - this.top) / this.lanes.workers), 3, 30);
    this.height = this.top + this.lanes.workers * this.laneHeight + 2;
    this.stack.style.height = `${this.height}px`;
  }

  laneTop(worker) {
    return this.top + worker * this.laneHeight;
  }

  get boxHeight() {
    return this.laneHeight - (this.laneHeight > 6 ? 2 : this.laneHeight > 3 ? 1 : 0);
  }

  draw() {
    const context = surface(this.below, this.width, this.height);
    if (!context) return;
    const { lanes, view } = this;
    this.paint = this.paints(context);
    context.font = FONT;
    this.drawNames(context);
    context.save();
    context.beginPath();
    context.rect(GUTTER.left, 0, view.width, this.height);
    context.clip();
    const ended = view.x(lanes.end); // beyond it there is nothing, not even waiting
    context.beginPath();
    context.rect(GUTTER.left, 0, ended - GUTTER.left, this.height);
    context.clip();
    for (let shard = 0; shard < lanes.shards; shard++) this.drawVersions(context, shard);
    for (let worker = 0; worker < lanes.workers; worker++) this.drawLane(context, worker);
    context.restore();
  }

  paints(context) {
    const hatch = (line, ground) => {
      const tile = el("canvas", { width: 6, height: 6 });
      const on = tile.getContext("2d");
      on.fillStyle = ground;
      on.fillRect(0, 0, 6, 6);
      on.strokeStyle = line;
      on.lineWidth = 1.4;
      for (const shift of [-6, 0, 6]) {
        on.moveTo(shift, 6);
        on.lineTo(shift + 6, 0);
      }
      on.stroke();
      return context.createPattern(tile, "repeat");
    };
    const [dropped, faint] = [theme.colour("dropped"), theme.colour("faint")];
    return {
      dropped,
      droppedBox: hatch(dropped, theme.colour("dropped-ground")),
      interrupted: theme.colour("interrupted"),
      absent: hatch(theme.colour("line"), theme.colour("lane")),
      lane: theme.colour("lane"),
      merged: theme.colour("merged"),
      unfinished: theme.colour("unfinished"),
      text: theme.colour("text"),
      faint,
    };
  }

  drawNames(context) {
    const { lanes, paint } = this;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillStyle = paint.faint;
    if (this.shardHeight > 8) {
      for (let s = 0; s < lanes.shards; s++) {
        const name = lanes.shards > 1 ? `shard ${s}` : "versions";
        context.fillText(name, GUTTER.left - 8, (s + 0.5) * this.shardHeight);
      }
    }
    const every = Math.ceil(13 / this.laneHeight);
    for (let w = 0; w < lanes.workers; w += every) {
      const name = w === 0 ? "worker 0" : String(w);
      context.fillText(name, GUTTER.left - 8, this.laneTop(w) + this.laneHeight / 2);
    }
  }

  drawVersions(context, shard) {
    const { lanes, view, paint } = this;
    const times = lanes.versions[shard];
    const [first, last] = [countUpTo(times, view.from), countUpTo(times, view.to)];
    const [y, h] = [shard * this.shardHeight + 2, this.shardHeight - 4];
    context.fillStyle = paint.lane;
    context.fillRect(GUTTER.left, y, view.width, h);
    context.fillStyle = paint.faint;
    if (last - first > view.width / 2) {
      // More than there are columns: how dense they are.
      const column = new Float32Array(Math.ceil(view.width) + 1);
      for (let k = first; k < last; k++) column[Math.floor(view.x(times[k]) - GUTTER.left)]++;
      const most = column.reduce((a, b) => Math.max(a, b), 1);
      column.forEach((n, x) => {
        context.globalAlpha = n / most;
        context.fillRect(GUTTER.left + x, y, 1, h);
      });
      context.globalAlpha = 1;
      return;
    }
    context.textAlign = "left";
    let free = -Infinity; // where the last number ended
    for (let k = Math.max(0, first - 1); k < last; k++) {
      const x = view.x(times[k]);
      context.fillRect(x - 0.5, y, 1, h);
      const text = String(k + 1);
      const next = k + 1 < times.length ? view.x(times[k + 1]) : Infinity;
      const width = 7 * text.length;
      if (x < free || next - x < width + 6 || this.shardHeight < 12) continue;
      context.fillText(text, x + 3, y + h / 2);
      free = x + width + 6;
    }
  }

  drawLane(context, worker) {
    const { lanes, view, paint, boxHeight } = this;
    const y = this.laneTop(worker) + (this.laneHeight - boxHeight) / 2;
    context.fillStyle = paint.lane;
    context.fillRect(GUTTER.left, y, view.width, boxHeight);
    for (const [from, to] of lanes.absences[worker]) {
      context.fillStyle = paint.absent;
      context.fillRect(view.x(from), y, view.x(to) - view.x(from), boxHeight);
    }
    const perPixel = view.span / view.width;
    const last = lanes.first[worker + 1];
    const column = new Column(context, y, boxHeight, this);
    for (let i = Math.max(lanes.lastBegun(worker, view.from), lanes.first[worker]); i < last; i++) {
      if (lanes.start[i] > view.to) break;
      const x = view.x(lanes.start[i]);
      const width = (lanes.stop[i] - lanes.start[i]) / perPixel;
      if (width < NARROW) column.add(x, width, i);
      else {
        column.flush(); // the one before may end in the same pixel
        this.drawBox(context, i, x, y, width);
      }
    }
    column.flush();
  }

  drawBox(context, i, x, y, width) {
    const { lanes, paint, boxHeight } = this;
    const outcome = lanes.outcome[i];
    const gap = Math.min(1, width * 0.06);
    context.fillStyle = this.fill(i, width);
    if (width > 2e4) [x, width] = [Math.max(x, -10), Math.min(width, 2e4)]; // far beyond both edges
    context.fillRect(x, y, width - gap, boxHeight);
    this.drawSteps(context, i, x, y, width - gap);
    if (outcome === PARTLY) {
      context.fillStyle = paint.dropped;
      context.fillRect(x, y + boxHeight - 3, width - gap, 3);
    }
  }

  // A row of local steps as so many, each of an equal share: its steps' own times are not known.
  drawSteps(context, i, x, y, width) {
    const taken = this.lanes.taken[i];
    if (taken < 2 || width / taken < 4) return;
    context.fillStyle = this.paint.lane;
    for (let k = 1; k < taken; k++) context.fillRect(x + (width * k) / taken, y + this.boxHeight / 2, 1, this.boxHeight / 2);
  }

  fill(i, width) {
    const { lanes, paint } = this;
    const outcome = lanes.outcome[i];
    if (lanes.late[i] >= 0) return this.scale.colour(lanes.late[i]);
    if (outcome === DROPPED) return width > 5 ? paint.droppedBox : paint.dropped;
    if (outcome === INTERRUPTED) return paint.interrupted;
    return outcome === MERGED ? paint.merged : paint.unfinished;
  }
}

// Gradients that share a column of pixels: their mean delay, as strong as they fill it.
class Column {
  constructor(context, y, height, panel) {
    Object.assign(this, { context, y, height, panel, x: null });
    this.clear();
  }

  clear() {
    this.filled = this.late = this.known = this.dropped = this.stopped = 0;
  }

  add(from, width, i) {
    const to = from + width;
    for (let x = Math.floor(from); x < to || x === Math.floor(from); x++) {
      if (x !== this.x) {
        this.flush();
        this.x = x;
      }
      // What takes no time at all is still there.
      this.count(Math.max(Math.min(to, x + 1) - Math.max(from, x), 0.05), i);
    }
  }

  count(width, i) {
    const late = this.panel.lanes.late[i];
    this.filled += width;
    if (late >= 0) {
      this.late += late * width;
      this.known += width;
    } else if (this.panel.lanes.outcome[i] === DROPPED) this.dropped += width;
    else if (this.panel.lanes.outcome[i] === INTERRUPTED) this.stopped += width;
  }

  flush() {
    if (this.filled > 0) {
      const { context, panel } = this;
      const { dropped, interrupted, unfinished } = panel.paint;
      const known = this.known > 0 && this.known >= Math.max(this.dropped, this.stopped);
      const other = this.dropped > 0 ? dropped : this.stopped > 0 ? interrupted : unfinished;
      context.fillStyle = known ? panel.scale.colour(this.late / this.known) : other;
      context.globalAlpha = Math.min(1, this.filled);
      context.fillRect(this.x, this.y, 1, this.height);
      context.globalAlpha = 1;
    }
    this.clear();
  }
}
