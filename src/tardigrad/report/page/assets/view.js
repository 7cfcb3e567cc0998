// Which stretch of time all timelines show.

const GUTTER = { left: 64, right: 104 }; // beside the lanes: who it is, and what it holds

class View {
  constructor(end, from, to) {
    this.end = end;
    this.from = from;
    this.to = to;
    this.width = 0; // of the lanes, in pixels
    this.listeners = [];
  }

  get span() {
    return this.to - this.from;
  }

  x(time) {
    return GUTTER.left + ((time - this.from) / this.span) * this.width;
  }

  time(x) {
    return this.from + ((x - GUTTER.left) / this.width) * this.span;
  }

  show(from, span) {
    span = clamp(span, this.end * 1e-7, this.end);
    this.from = clamp(from, 0, this.end - span);
    this.to = this.from + span;
    for (const listener of this.listeners) listener();
  }

  // Around a time that stays where it is.
  zoom(factor, around = (this.from + this.to) / 2) {
    const span = clamp(this.span / factor, this.end * 1e-7, this.end);
    this.show(around - ((around - this.from) / this.span) * span, span);
  }

  pan(time) {
    this.show(this.from + time, this.span);
  }

  all() {
    this.show(0, this.end);
  }
}
