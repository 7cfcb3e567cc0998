// The page, put together.

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
    el("footer", { class: "quiet" }, `Made by tardigrad ${page.version}. One file, which asks for nothing.`),
  ];
  document.body.append(el("main", {}, ...parts.filter((part) => part !== null)));
  requestAnimationFrame(() => {
    window.tardigrad = { page, theme, ...timeline, readyMs: performance.now() };
  });
}

start();
