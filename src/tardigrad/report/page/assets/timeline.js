// The timelines of all runs on one clock, with the player and its buttons.

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
      seen(INTERRUPTED) ? chip("interrupted", "interrupted") : null,
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
  const first = (shown, all, what) => `the first ${grouped(shown)} of ${grouped(all)} ${what}`;
  if (lanes.workers < lanes.allWorkers) words.push(first(lanes.workers, lanes.allWorkers, "workers"));
  if (!lanes.whole) words.push(first(lanes.count, lanes.gradients, "gradients"));
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
  for (const panel of panels) {
    const name = el("span", {}, panel.label + cutWords(panel));
    const held = el("span", { class: "quiet" }, "held at the cursor, and updates behind");
    area.append(el("h3", { class: "lane-title" }, name, held), panel.stack);
  }
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
  const hint = el(
    "p",
    { class: "quiet" },
    "Drag to pan, ctrl + wheel or pinch to zoom, click to set the cursor, ",
    "point at a gradient for its story. Keys: ← → + − 0 and space.",
  );
  const beside = besideTimeline(page, player, made);
  const shown = el("div", { class: "timeline" }, area, beside);
  const section = el(
    "section",
    { id: "timeline" },
    el("h2", {}, "Timeline"),
    el("div", { class: "card" }, bar, shown, scale.legend(panels), hint),
  );
  return { section, player, view, panels, hovers, scale };
}
