// Curves by uPlot, in the page's colours.

// 1, 2 and 5 of every decade; more where there is hardly one, fewer where there are many.
function logTicks(u, axis, min, max) {
  const out = [];
  const decades = Math.log10(max / min);
  const every = Math.max(1, Math.ceil(decades / 6));
  const digits = decades > 3 ? [1] : decades > 1.1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  const first = Math.floor(Math.log10(min) / every) * every;
  for (let power = first; power <= Math.ceil(Math.log10(max)); power += every) {
    for (const n of digits) {
      const tick = Number((n * 10 ** power).toPrecision(6));
      if (tick >= min && tick <= max) out.push(tick);
    }
  }
  return out.length > 1 ? out : roundTicks(min, max, 4).ticks;
}

const LOGARITHMIC = { splits: logTicks, filter: (u, ticks) => ticks };

function shortText(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${Number((value / 1e9).toPrecision(3))}G`;
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(4)));
}

// The last point at or before the pointer that a line has: lines are measured at times of their own.
function pointOf(u, number, index) {
  while (index > 0 && u.data[number][index] == null) index--;
  return index;
}

// Whether some lines would end in the first quarter of the axis: then it is logarithmic.
function isFar(lines) {
  const ends = lines.map((line) => line.x[line.x.length - 1]).filter((end) => end > 0);
  return ends.length > 1 && Math.min(...ends) < Math.max(...ends) / 4;
}

function withoutZero(line) {
  const kept = line.x.map((x, i) => i).filter((i) => line.x[i] > 0);
  return { ...line, x: kept.map((i) => line.x[i]), y: kept.map((i) => line.y[i]) };
}

class Chart {
  // about: title, xLabel, lines of {label, colour, faint, x, y}, log, share, bars, least
  constructor(about) {
    this.about = about;
    this.holder = el("div", { class: "plot" });
    this.card = el("figure", { class: "card chart" }, el("figcaption", {}, about.title), this.holder);
    this.veil = el("div", { class: "veil", hidden: "" });
    new ResizeObserver(() => this.resize()).observe(this.holder);
    theme.listeners.push(() => this.draw());
  }

  get height() {
    return this.about.height || 240;
  }

  resize() {
    const width = this.holder.clientWidth;
    if (width <= 0) return;
    if (!this.plot) this.draw();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: this.height });
  }

  show(about) {
    Object.assign(this.about, about);
    this.draw();
  }

  draw() {
    const width = this.holder.clientWidth;
    if (width <= 0) return;
    if (this.plot) this.plot.destroy();
    const far = !this.about.bars && isFar(this.about.lines);
    const lines = far ? this.about.lines.map(withoutZero) : this.about.lines;
    const log = this.about.log && lines.every((line) => line.y.every((v) => v === null || v > 0));
    const tables = lines.map((line) => [line.x, line.y]);
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0];
    const [faint, grid] = [theme.colour("faint"), { stroke: theme.colour("grid"), width: 1 }];
    const axis = { stroke: faint, grid, ticks: grid, font: FONT, labelFont: FONT };
    const share = (v) => `${Number((v * 100).toPrecision(3))}%`;
    const text = this.about.share ? share : shortText;
    const texts = (u, ticks) => ticks.map((v) => (v == null ? "" : text(v)));
    const options = {
      width,
      height: this.height,
      scales: { x: { time: false, ...this.xScale(far) }, y: this.yScale(log) },
      axes: [
        { ...axis, ...this.xAxis(far), values: (u, ticks) => ticks.map(shortText) },
        { ...axis, size: 54, values: texts, ...(log ? LOGARITHMIC : {}) },
      ],
      series: [
        { label: this.about.xName, value: (u, v) => (v == null ? "–" : shortText(v)) },
        ...lines.map((line) => this.series(line, text)),
      ],
      legend: { show: !this.about.plain },
      hooks: { draw: [() => this.moveVeil()] },
      cursor: { points: { size: 6 }, dataIdx: pointOf, drag: { x: true, y: false } },
    };
    this.plot = new uPlot(options, data, this.holder);
    this.plot.over.append(this.veil);
  }

  xScale(far) {
    return far ? { distr: 3, range: (u, low, high) => [low, high] } : {};
  }

  yScale(log) {
    if (log) return { distr: 3, range: (u, low, high) => [low / 1.1, high * 1.1] };
    const { least } = this.about; // what the axis goes to at least, from 0
    return least === undefined ? {} : { range: (u, low, high) => [0, Math.max(least, high * 1.05)] };
  }

  xAxis(far) {
    const axis = { label: this.about.xLabel, labelSize: 18, size: 32 };
    if (far) return { ...axis, ...LOGARITHMIC };
    const whole = [1, 2, 5].map((n) => [0, 1, 2, 3, 4, 5].map((power) => n * 10 ** power)).flat();
    const incrs = this.about.bars ? { incrs: whole.sort((a, b) => a - b) } : {};
    return { ...axis, ...incrs };
  }

  series(line, text) {
    const stroke = line.colour();
    const look = { stroke, width: line.faint ? 1 : 2, alpha: line.faint ? 0.55 : 1 };
    if (this.about.bars) {
      look.paths = uPlot.paths.stepped({ align: 1 });
      look.fill = `${stroke}40`;
    }
    const few = line.x.length <= 40 && !line.faint && !this.about.bars;
    return {
      ...look,
      label: line.label,
      points: { show: few, size: 5 },
      value: (u, v) => (v == null ? "–" : text(v)),
    };
  }

  // Hide what has not happened yet at this time; null: show all.
  until(time) {
    this.now = time;
    this.moveVeil();
  }

  moveVeil() {
    const { plot, veil, now } = this;
    veil.hidden = now === undefined || now === null || !plot;
    if (veil.hidden) return;
    const left = clamp(plot.valToPos(now, "x") || 0, 0, plot.over.clientWidth);
    veil.style.left = `${left}px`;
  }
}
