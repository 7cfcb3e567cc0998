// Elements. Text goes in as text: nothing that a user named is ever read as HTML.

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// A drawing surface of the given size in CSS pixels, sharp on every screen; null where it has none.
function surface(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (width <= 0 || height <= 0) return null;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

function grouped(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

// A time as people write it: four digits, or all before the point.
function timeText(value) {
  return Math.abs(value) >= 1000 ? grouped(value) : String(Number(value.toPrecision(4)));
}
