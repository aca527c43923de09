// Brings a page of trl_populora to life: unpacks its data, draws its figures, sorts its tables, runs its widgets.
// What models wrote reaches the page by textContent alone.
"use strict";

const element = (id) => document.getElementById(id);
const packed = {};

// Data ---------------------------------------------------------------------------------------------------------------

async function unpack(name) {
  const bytes = Uint8Array.from(atob(element(`data-${name}`).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** The page's data of this name. */
function load(name) {
  packed[name] ??= unpack(name).then(JSON.parse);
  return packed[name];
}

/** Make an element: `make("td", {class: "count", text: "7"}, child, ...)`. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function trouble(error) {
  const place = element("trouble");
  place.textContent = `This page could not show everything: ${error.message ?? error}`;
  place.hidden = false;
  console.error(error);
}

// Figures ------------------------------------------------------------------------------------------------------------

let drawing = null;
const drawn = new Set();
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)");

function plotly() {
  drawing ??= unpack("plotly").then((source) => {
    const script = document.createElement("script");
    script.textContent = source;
    document.head.append(script);
    return window.Plotly;
  });
  return drawing;
}

/** A copy of a figure in which the names of colours, as "var(--c0)", are the colours of the theme. */
function coloured(value, style) {
  if (typeof value === "string") {
    return value.startsWith("var(--") ? style.getPropertyValue(value.slice(4, -1)).trim() : value;
  }
  if (Array.isArray(value)) return value.map((one) => coloured(one, style));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, style)]));
}

function template() {
  const axis = {
    gridcolor: "var(--grid)", linecolor: "var(--line)", zerolinecolor: "var(--line)", automargin: true,
    title: { font: { size: 11, color: "var(--muted)" }, standoff: 8 }, tickfont: { size: 11, color: "var(--muted)" },
  };
  return {
    layout: {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: touch.matches ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: "var(--ink)" },
      margin: { l: 44, r: 10, t: 8, b: 36 }, xaxis: axis, yaxis: axis,
      hoverlabel: { bgcolor: "var(--card)", bordercolor: "var(--line)", font: { color: "var(--ink)", size: 11 } },
      legend: { orientation: "h", y: -0.2, yanchor: "top", x: 0, font: { size: 11 }, bgcolor: "rgba(0,0,0,0)" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--muted)", activecolor: "var(--accent)" },
      sliderdefaults: {
        bgcolor: "var(--accent)", activebgcolor: "var(--accent)", bordercolor: "var(--line)", ticklen: 0, minorticklen: 0,
        font: { size: 10, color: "rgba(0,0,0,0)" }, currentvalue: { font: { size: 12, color: "var(--ink)" } },
      },
    },
  };
}

function themed(figure) {
  const style = getComputedStyle(document.documentElement);
  const layout = { ...figure.layout, autosize: true, template: template() };
  return coloured({ data: figure.data, layout, frames: figure.frames ?? [] }, style);
}

const CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: touch.matches ? false : "hover",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};

async function draw(place) {
  const [figures, library] = await Promise.all([load("figures"), plotly()]);
  const figure = themed(figures[place.dataset.figure]);
  if (drawn.has(place)) { // the theme has changed
    const active = place.layout.sliders?.[0].active;
    if (active !== undefined) {
      figure.layout.sliders[0].active = active;
      figure.data = figure.frames[active].data;
    }
    library.purge(place);
  }
  drawn.add(place);
  await library.newPlot(place, { ...figure, config: CONFIG });
  place.dataset.drawn = dark.matches ? "dark" : "light";
}

function drawWhenSeen() {
  const observer = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (isIntersecting) {
        observer.unobserve(target);
        draw(target).catch(trouble);
      }
    }
  }, { rootMargin: "400px" });
  document.querySelectorAll("[data-figure]").forEach((place) => observer.observe(place));
  dark.addEventListener("change", () => drawn.forEach((place) => draw(place).catch(trouble)));
}

// Tables -------------------------------------------------------------------------------------------------------------

/** Orders values; numbers by size, the empty ones last whatever the direction. */
function compare(a, b, direction) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const numbers = [Number(a), Number(b)];
  const order = numbers.some(Number.isNaN) ? a.localeCompare(b, undefined, { numeric: true }) : numbers[0] - numbers[1];
  return direction * order;
}

function sortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const numeric = !["text", "code"].includes(head.className);
    const before = head.getAttribute("aria-sort");
    const up = before === "none" ? !numeric : before === "descending";
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => row.cells[column].dataset.value;
    body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b), up ? 1 : -1)));
  }));
  body.querySelectorAll("tr[data-key]").forEach((row) => {
    const choose = () => table.dispatchEvent(new CustomEvent("choose", { detail: row.dataset.key, bubbles: true }));
    row.addEventListener("click", choose);
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(); });
  });
}

// The page -----------------------------------------------------------------------------------------------------------

function followSections() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const observer = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (isIntersecting) links.forEach((link, id) => link.classList.toggle("here", id === target.id));
    }
  }, { rootMargin: "-20% 0px -75% 0px" });
  document.querySelectorAll("main > section").forEach((section) => observer.observe(section));
}

/** While a run is watched the page loads itself again, at the same place, unless somebody is writing in it. */
function reloadLater() {
  const seconds = Number(document.body.dataset.reload);
  if (!seconds) return;
  const key = `scroll of ${location.pathname}`;
  const before = sessionStorage.getItem(key);
  if (before !== null) scrollTo(0, Number(before));
  setInterval(() => {
    if (document.activeElement?.matches("input, select") || document.querySelector("dialog[open]")) return;
    sessionStorage.setItem(key, String(scrollY));
    location.reload();
  }, 1000 * seconds);
}

/** Name -> function of a widget's element. */
const WIDGETS = {};

function start() {
  if (typeof DecompressionStream === "undefined") {
    trouble("this browser is too old (it has no DecompressionStream). Use one of 2023 or later.");
    return;
  }
  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("[data-widget]").forEach((place) => {
    Promise.resolve(WIDGETS[place.dataset.widget](place)).catch(trouble);
  });
  drawWhenSeen();
  followSections();
  reloadLater();
}

start();
