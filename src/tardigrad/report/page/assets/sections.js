// All but drawings: what to notice, the table, what was run.

function headerOf(page) {
  return el(
    "header",
    {},
    el("div", {}, el("p", { class: "brand" }, `tardigrad ${page.version}`), el("h1", {}, page.title)),
    theme.button(),
  );
}

function noticesSection(page) {
  if (!page.notices.length) return null;
  const items = page.notices.map((sentence) => el("li", {}, sentence));
  const list = el("ol", { class: "notices" }, ...items);
  return el("section", { id: "notices" }, el("h2", {}, "What to notice"), list);
}

function tableSection(page) {
  const { title, columns, rows } = page.table;
  const head = el("tr", {}, ...columns.map((name) => el("th", {}, name)));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell))));
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...body));
  return el(
    "section",
    { id: "results" },
    el("h2", {}, "Results"),
    el("div", { class: "card scroll" }, table, el("p", { class: "quiet" }, title)),
  );
}

function copied(text) {
  const area = el("textarea", { class: "aside" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy"); // a page in a file may use no other way
  area.remove();
  return done;
}

function copyButton(text) {
  const button = el("button", { type: "button", class: "copy" }, "copy");
  button.addEventListener("click", () => {
    button.replaceChildren(copied(text) ? "copied" : "select and copy it");
    setTimeout(() => button.replaceChildren("copy"), 1500);
  });
  return button;
}

function copyable(text) {
  return el("div", { class: "copyable" }, el("pre", {}, text), copyButton(text));
}

function whatWasRun(page) {
  const told = page.runs.filter((run) => run.spec || run.command);
  if (!told.length) return null;
  const parts = told.map((run) => {
    const made = [];
    if (told.length > 1) made.push(el("h3", {}, run.label));
    if (run.command) {
      const how = run.command.includes("spec.toml") ? "Save what stands below as spec.toml, then type" : "Type";
      made.push(el("p", { class: "quiet" }, how), copyable(run.command));
    }
    if (run.spec) made.push(copyable(run.spec));
    return el("div", { class: "card" }, ...made);
  });
  return el("section", { id: "spec" }, el("h2", {}, "What was run"), el("div", { class: "grid" }, ...parts));
}
