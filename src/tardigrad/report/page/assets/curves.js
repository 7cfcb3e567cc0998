// Loss, accuracy, gap and delay, by update, time or bytes; and how late gradients were.

const CURVES = {
  loss: { title: "Loss", log: true },
  accuracy: { title: "Accuracy", share: true },
  delay: { title: "Delay: updates between pull and push, mean", least: 1 },
  gap: { title: "Gap: root mean square of θ − view, mean", least: 0 },
};

// Of one run every line; of several the first of each, so that like stands beside like.
function linesOf(runs, name, axis) {
  const several = runs.length > 1;
  const lines = [];
  runs.forEach((run, number) => {
    const known = run.curves[name].filter((line) => axis in line.by);
    (several ? known.slice(0, 1) : known).forEach((line, i) => {
      const [x, y] = line.by[axis];
      const place = several ? number : i;
      const label = several ? run.label : line.name;
      const faint = !several && known.length > 1 && line.name === "batch loss";
      lines.push({ label, x, y, faint, colour: () => theme.series(place) });
    });
  });
  return lines;
}

function axisNames(clock) {
  return { update: "updates", time: `${clock.time} (${clock.unit})`, bytes: "bytes pushed and pulled" };
}

function curvesSection(page, player) {
  const names = axisNames(page.clock);
  const has = (name, axis) => linesOf(page.runs, name, axis).length > 0;
  const axes = Object.keys(names).filter((axis) => Object.keys(CURVES).some((name) => has(name, axis)));
  if (!axes.length) return null;
  let chosen = axes.includes("time") ? "time" : axes[0];
  const charts = {};
  const grid = el("div", { class: "grid" });
  for (const [name, about] of Object.entries(CURVES)) {
    if (!axes.some((axis) => has(name, axis))) continue;
    charts[name] = new Chart({ ...about, lines: [] });
    grid.append(charts[name].card);
  }
  if (Object.keys(charts).length === 3) grid.classList.add("three");
  const buttons = axes.map((axis) => {
    const about = { type: "button", "data-axis": axis, onclick: () => choose(axis) };
    return el("button", about, names[axis]);
  });
  const veil = () => {
    const hides = chosen === "time" && player !== null && player.time < player.view.end;
    for (const chart of Object.values(charts)) chart.until(hides ? player.time : null);
  };
  const choose = (axis) => {
    chosen = axis;
    for (const button of buttons) button.classList.toggle("chosen", button.dataset.axis === axis);
    for (const [name, chart] of Object.entries(charts)) {
      const lines = linesOf(page.runs, name, axis);
      chart.card.hidden = !lines.length;
      if (lines.length) chart.show({ lines, xLabel: names[axis], xName: axis });
    }
    veil();
  };
  if (player) player.listeners.push(veil);
  choose(chosen);
  const bar = el("div", { class: "switch", role: "group" }, "by ", ...buttons);
  return el("section", { id: "curves" }, el("h2", {}, "Curves"), bar, grid);
}

function delaysSection(page) {
  const lines = page.delays.map(({ label, mean, width, shares, first }) => {
    const padded = [...shares, ...new Array(Math.max(1, 7 - shares.length)).fill(0)];
    return {
      label: `${label}: mean ${mean.toFixed(1)}`,
      x: padded.map((_, k) => k * width - 0.5),
      y: padded,
      colour: () => theme.series(first),
    };
  });
  const title = "Share of gradients by delay (updates between pull and push)";
  const look = { share: true, bars: true, least: 0 };
  const chart = new Chart({ title, lines, ...look, xLabel: "delay (updates)", xName: "delay" });
  return el("section", { id: "delays" }, el("h2", {}, "How late gradients were"), chart.card);
}
