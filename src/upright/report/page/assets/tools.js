// Small helpers that the other files share.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "circle"].includes(tag);
  const node = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

function percent(fraction, digits = 1) {
  return `${(100 * fraction).toFixed(digits)} %`;
}

// Without zeros at its end, and with a true minus sign.
function number(value, decimals = 2) {
  return String(Number(value.toFixed(decimals)) || 0).replace("-", "−");
}

function signed(value, decimals = 2) {
  return value > 0 ? `+${number(value, decimals)}` : number(value, decimals);
}

// Custom properties that depend on light or dark are resolved by an element only.
function colours(...names) {
  const probe = document.body.appendChild(make("i", { hidden: "" }));
  const found = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return found;
}

const repaints = [];

// Call again whenever colours or sizes may have changed.
function repaint(paint) {
  repaints.push(paint);
}

function repaintAll() {
  for (const paint of repaints) paint();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaintAll);
let wait = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(wait);
  wait = requestAnimationFrame(repaintAll);
});

const tip = byId("tip");
let tipFollows;

// `follow` shows the tip anew at the place of what it belongs to, after the page has scrolled.
function showTip(text, x, y, follow = hideTip) {
  tipFollows = follow;
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${clamp(x + 14, 8, innerWidth - box.width - 8)}px`;
  tip.style.top = `${y - box.height - 12 < 8 ? y + 18 : y - box.height - 12}px`;
}

function hideTip() {
  tip.hidden = true;
}

addEventListener("scroll", () => tip.hidden || tipFollows(), { passive: true });
addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
