// The page, put together.

// Colours by delay, the same for all runs on the page.
class DelayScale {
  constructor(colours, most) {
    this.colours = colours;
    this.most = most;
  }

  colour(late) {
    const place = (late / Math.max(1, this.most)) * (this.colours.length - 1);
    return this.colours[clamp(Math.round(place), 0, this.colours.length - 1)];
  }

  legend(panels) {
    const strip = el("span", { class: "strip" });
    document.documentElement.style.setProperty("--punctual", this.colours[0]);
    strip.style.background = `linear-gradient(90deg, ${this.colours.join(",")})`;
    const seen = (outcome) => panels.some(({ lanes }) => lanes.outcome.includes(outcome));
    const chip = (kind, name) => el("span", { class: "key" }, el("i", { class: `chip ${kind}` }), name);
    return el(
      "div",
      { class: "legend" },
      this.most > 0
        ? el("span", { class: "key" }, "delay 0 ", strip, ` ${grouped(this.most)} updates`)
        : chip("punctual", "delay 0"),
      seen(DROPPED) || seen(PARTLY) ? chip("dropped", "dropped") : null,
      seen(MERGED) ? chip("merged", "merged") : null,
      seen(UNFINISHED) ? chip("unfinished", "unfinished") : null,
      chip("waiting", "waiting"),
      panels.some(({ lanes }) => lanes.absences.some((stays) => stays.length)) ? chip("absent", "away") : null,
    );
  }
}

// The first twenty gradients or so of each worker: the whole run is a click away.
function firstLook(panels, end) {
  const spans = panels.map(({ lanes }) => {
    const each = lanes.count / lanes.workers;
    return each <= 60 ? lanes.end : (lanes.end * 20) / each;
  });
  return Math.min(end, Math.max(...spans));
}

function cutWords(panel) {
  const { lanes } = panel;
  const words = [];
  if (lanes.workers < lanes.allWorkers) words.push(`the first ${grouped(lanes.workers)} of ${grouped(lanes.allWorkers)} workers`);
  if (!lanes.whole) words.push(`the first ${grouped(lanes.count)} of ${grouped(lanes.gradients)} gradients`);
  return words.length ? ` (${words.join(", ")})` : "";
}

function timelineSection(page) {
  const runs = page.runs.filter((run) => run.timeline);
  if (!runs.length) return { section: null, player: null, view: null };
  const made = runs.map((run) => new Lanes(run.timeline));
  const end = Math.max(...made.map((lanes) => lanes.end)) || 1;
  const scale = new DelayScale(page.colours, Math.max(...made.map((lanes) => lanes.latest)));
  const view = new View(end, 0, end);
  const panels = made.map((lanes, i) => new Panel(lanes, runs[i].label, view, scale));
  view.to = firstLook(panels, end);
  const player = new Player(view, page.clock);
  const hovers = panels.map((panel) => new Hover(panel, player, page.clock));
  const axis = new TimeAxis(view, `${page.clock.time} (${page.clock.unit})`);
  const overview = new Overview(panels, view, player);
  const area = el("div", { class: "lanes" });
  panels.forEach((panel, i) => {
    const held = el("span", { class: "quiet" }, "held at the cursor, and updates behind");
    area.append(el("h3", { class: "lane-title" }, el("span", {}, panel.label + cutWords(panel)), held), panel.stack);
  });
  area.append(axis.canvas, overview.canvas);

  const drawAbove = () => {
    for (const hover of hovers) hover.draw();
    overview.draw(area.clientWidth);
  };
  const drawAll = () => {
    const width = area.clientWidth;
    for (const panel of panels) panel.draw();
    axis.draw(width);
    drawAbove();
  };
  const resize = () => {
    const width = area.clientWidth;
    if (width <= GUTTER.left + GUTTER.right) return;
    view.width = width - GUTTER.left - GUTTER.right;
    for (const panel of panels) panel.layOut(width, panels.length > 1 ? 340 : 480);
    overview.resize();
    drawAll();
  };
  new ResizeObserver(resize).observe(area);
  view.listeners.push(drawAll);
  player.listeners.push(drawAbove);
  theme.listeners.push(drawAll);

  const button = (id, text, title, act) => el("button", { id, type: "button", title, onclick: act }, text);
  const bar = el(
    "div",
    { class: "toolbar" },
    player.button,
    player.chooser,
    player.slider,
    player.told,
    button("in", "+", "zoom in", () => view.zoom(2)),
    button("out", "−", "zoom out", () => view.zoom(0.5)),
    button("all", "all", "the whole run", () => view.all()),
  );
  const hint = el("p", { class: "quiet" }, "Drag to pan, ctrl + wheel or pinch to zoom, click to set the cursor, point at a gradient for its story. Keys: ← → + − 0 and space.");
  const beside = besideTimeline(page, player, made);
  const section = el(
    "section",
    { id: "timeline" },
    el("h2", {}, "Timeline"),
    el("div", { class: "card" }, bar, el("div", { class: "timeline" }, ...[area, beside].filter(Boolean)), scale.legend(panels), hint),
  );
  return { section, player, view, panels, hovers, scale };
}

// The loss, filling as the cursor moves, and where each run is then; where there is room for it,
// the accuracy too.
function besideTimeline(page, player, lanes) {
  const high = lanes.reduce((sum, each) => sum + each.workers, 0) >= 24;
  const parts = ["loss", "accuracy"].slice(0, high ? 2 : 1).map((name) => fillingChart(page, player, name));
  const shown = parts.flat().filter((part) => part !== null);
  return shown.length ? el("aside", { id: "beside" }, ...shown) : null;
}

function fillingChart(page, player, name) {
  const timed = page.runs.filter((run) => run.timeline);
  const lines = linesOf(timed, name, "time");
  if (!lines.length) return [null];
  for (const line of lines) {
    const number = page.runs.findIndex((run) => run.label === line.label);
    if (page.runs.length > 1) line.colour = () => theme.series(Math.max(0, number));
  }
  const { title, log, share } = CURVES[name];
  const xLabel = axisNames(page.clock).time;
  const about = { title: `${title} so far`, log, share, lines, xLabel, xName: "time", height: 230, plain: true };
  const chart = new Chart(about);
  const facts = el("ul", { class: "facts" });
  const show = () => {
    chart.until(player.time < player.view.end ? player.time : null);
    const items = lines.map((line) => {
      const known = countUpTo(line.x, player.time) - 1;
      const value = known < 0 ? null : line.y[known];
      const text = value === null ? "–" : share ? `${(100 * value).toFixed(1)}%` : shortText(value);
      const mark = el("i", { class: "mark" });
      mark.style.background = line.colour();
      return el("li", {}, mark, el("span", {}, line.label), el("b", {}, text));
    });
    facts.replaceChildren(...items);
  };
  player.listeners.push(show);
  theme.listeners.push(show);
  show();
  return [chart.card, facts];
}

function start() {
  const page = JSON.parse(document.getElementById("data").textContent);
  theme.start();
  const timeline = timelineSection(page);
  const parts = [
    headerOf(page),
    noticesSection(page),
    timeline.section,
    curvesSection(page, timeline.player),
    delaysSection(page),
    tableSection(page),
    whatWasRun(page),
    el("footer", { class: "quiet" }, `Made by tardigrad ${page.version}. This page is one file; it asks for nothing.`),
  ];
  document.body.append(el("main", {}, ...parts.filter((part) => part !== null)));
  requestAnimationFrame(() => {
    window.tardigrad = { page, theme, ...timeline, readyMs: performance.now() };
  });
}

start();
