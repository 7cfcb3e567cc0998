// Light and dark: what the system prefers, until the switch says otherwise.

const theme = {
  listeners: [],
  system: matchMedia("(prefers-color-scheme: dark)"),
  chosen: false,

  get dark() {
    return document.documentElement.dataset.theme === "dark";
  },

  // A colour of page.css by its name.
  colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  },

  series(number) {
    return this.colour(`series-${number % 8}`);
  },

  start() {
    const follow = () => {
      if (!this.chosen) this.show(this.system.matches ? "dark" : "light");
    };
    this.system.addEventListener("change", follow);
    follow();
  },

  show(name) {
    document.documentElement.dataset.theme = name;
    for (const listener of this.listeners) listener();
  },

  button() {
    const made = el("button", { id: "theme", type: "button", title: "Light or dark" });
    const name = () => made.replaceChildren(this.dark ? "☀ light" : "☾ dark");
    made.addEventListener("click", () => {
      this.chosen = true;
      this.show(this.dark ? "light" : "dark");
    });
    this.listeners.push(name);
    name();
    return made;
  },
};
