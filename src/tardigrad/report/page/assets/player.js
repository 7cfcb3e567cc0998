// A cursor through time. What is shown takes twenty seconds to cross, so zooming in slows it down.

const CROSSING_S = 20;

class Player {
  constructor(view, clock) {
    Object.assign(this, { view, clock, time: view.end, playing: false, speed: 1, listeners: [] });
    this.button = el("button", { id: "play", type: "button", class: "main", onclick: () => this.toggle() });
    this.slider = el("input", { id: "time", type: "range", min: 0, max: 1000, step: "any" });
    this.slider.setAttribute("aria-label", "time");
    this.slider.addEventListener("input", () => {
      this.go((this.slider.value / 1000) * view.end);
      if (this.time < view.from || this.time > view.to) view.show(this.time - view.span / 2, view.span);
    });
    const speeds = [0.25, 0.5, 1, 2, 4].map((n) => el("option", { value: n }, `${n}×`));
    this.chooser = el("select", { title: "speed" }, ...speeds);
    this.chooser.value = "1";
    this.chooser.addEventListener("change", () => (this.speed = Number(this.chooser.value)));
    this.told = el("output", { class: "now" });
    this.show();
  }

  go(time) {
    this.time = clamp(time, 0, this.view.end);
    this.show();
    for (const listener of this.listeners) listener();
  }

  show() {
    this.button.replaceChildren(this.playing ? "❚❚ pause" : "▶ play");
    this.slider.value = (this.time / this.view.end) * 1000;
    this.told.replaceChildren(`${timeText(this.time)} ${this.clock.unit}`);
  }

  toggle() {
    this.playing = !this.playing;
    if (this.playing) {
      const { view } = this;
      const seen = this.time >= view.from && this.time < view.to;
      if (!seen || this.time >= view.end) this.go(view.from);
      this.last = null;
      requestAnimationFrame((now) => this.tick(now));
    }
    this.show();
  }

  tick(now) {
    if (!this.playing) return;
    const { view } = this;
    const passed = this.last === null ? 0 : (now - this.last) / 1000;
    this.last = now;
    this.go(this.time + (passed * this.speed * view.span) / CROSSING_S);
    if (this.time > view.to - view.span * 0.15) view.show(this.time - view.span * 0.85, view.span);
    if (this.time >= view.end) {
      this.playing = false;
      this.show();
    } else requestAnimationFrame((next) => this.tick(next));
  }
}
