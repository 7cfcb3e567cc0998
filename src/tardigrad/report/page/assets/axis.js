// The clock that all timelines share: its ticks, and the whole run with the stretch that is shown.

// About so many round numbers from one to the other.
function roundTicks(from, to, about) {
  const rough = (to - from) / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((n) => n * power >= rough) * power;
  const out = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) out.push(k * step);
  return { step, ticks: out };
}

class TimeAxis {
  constructor(view, label) {
    Object.assign(this, { view, label });
    this.canvas = el("canvas", { class: "axis" });
  }

  draw(width) {
    const context = surface(this.canvas, width, 38);
    if (!context) return;
    const { view } = this;
    context.font = FONT;
    context.textBaseline = "top";
    context.fillStyle = theme.colour("faint");
    context.fillRect(GUTTER.left, 0, view.width, 1);
    const { step, ticks } = roundTicks(view.from, view.to, view.width / 110);
    const digits = clamp(-Math.floor(Math.log10(step) + 1e-9), 0, 12);
    context.textAlign = "center";
    for (const tick of ticks) {
      context.fillRect(view.x(tick), 0, 1, 5);
      const text = tick.toLocaleString("en-US", {
        minimumFractionDigits: digits,
        maximumFractionDigits: digits,
      });
      context.fillText(text, view.x(tick), 8);
    }
    context.fillText(this.label, GUTTER.left + view.width / 2, 23);
  }
}

// The whole run in small: mean delays over time, a line per run. Drag to look elsewhere.
class Overview {
  constructor(panels, view, player) {
    Object.assign(this, { panels, view, player });
    this.canvas = el("canvas", { class: "overview", title: "the whole run: click or drag to go there" });
    const go = (event) => {
      if (!(event.buttons & 1)) return;
      const share = (event.offsetX - GUTTER.left) / view.width;
      view.show(share * view.end - view.span / 2, view.span);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    this.canvas.addEventListener("pointermove", go);
    this.columns = [];
  }

  // Mean delays by column of pixels, and how many workers compute there.
  measure(lanes) {
    const wide = Math.ceil(this.view.width);
    const [busy, late, known] = [0, 1, 2].map(() => new Float64Array(wide + 1));
    const scale = this.view.width / this.view.end;
    for (let i = 0; i < lanes.count; i++) {
      const [x0, x1] = [lanes.start[i] * scale, lanes.stop[i] * scale];
      const last = Math.min(wide, Math.floor(x1));
      for (let x = Math.floor(x0); x <= last; x++) {
        const part = Math.min(x1, x + 1) - Math.max(x0, x);
        busy[x] += part;
        if (lanes.late[i] >= 0) {
          late[x] += lanes.late[i] * part;
          known[x] += part;
        }
      }
    }
    return { wide, busy, late, known };
  }

  resize() {
    this.columns = this.panels.map((panel) => this.measure(panel.lanes));
  }

  draw(width) {
    const line = 12;
    const height = this.panels.length * line + 4;
    const context = surface(this.canvas, width, height);
    if (!context) return;
    this.columns.forEach(({ wide, busy, late, known }, number) => {
      const panel = this.panels[number];
      const y = 2 + number * line;
      context.fillStyle = theme.colour("lane");
      context.fillRect(GUTTER.left, y, this.view.width, line - 2);
      for (let x = 0; x < wide; x++) {
        if (!busy[x]) continue;
        context.globalAlpha = Math.min(1, busy[x] / panel.lanes.workers);
        context.fillStyle = known[x] ? panel.scale.colour(late[x] / known[x]) : theme.colour("unfinished");
        context.fillRect(GUTTER.left + x, y, 1, line - 2);
      }
      context.globalAlpha = 1;
    });
    const x = (time) => GUTTER.left + (time / this.view.end) * this.view.width;
    context.strokeStyle = theme.colour("text");
    context.lineWidth = 1.5;
    const long = Math.max(4, x(this.view.to) - x(this.view.from));
    context.strokeRect(x(this.view.from), 1, long, height - 2);
    context.fillStyle = theme.colour("cursor");
    context.fillRect(x(this.player.time) - 0.75, 0, 1.5, height);
  }
}
