// Curves beside the timelines that fill as the cursor moves.

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
  const look = { log, share, height: 230, plain: true };
  const chart = new Chart({ title: `${title} so far`, lines, ...look, xLabel, xName: "time" });
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
