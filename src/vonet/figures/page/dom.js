// Small helpers: elements by name, and decoding of what the page carries.

const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const drawn = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

/** Bytes that were deflated and written in base 64. */
async function inflated(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function picture(url) {
  const image = new Image();
  image.src = url;
  await image.decode();
  return image;
}

const percent = (value) => (100 * value).toFixed(1).replace(/^-0\.0$/, "0.0");

/** A score as it is written everywhere: in percent except counts. */
const written = (name, value) => (name.count ? value.toFixed(2) : percent(value));

/** Few letters for any number. */
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9 || (size && size < 1e-3)) return value.toExponential(1);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  return size >= 1e4 ? `${+(value / 1e3).toPrecision(3)}k` : String(+value.toPrecision(3));
}

/** The end of a long name: there names of one set differ. */
const ending = (name, letters) => (name.length > letters ? `…${name.slice(1 - letters)}` : name);
