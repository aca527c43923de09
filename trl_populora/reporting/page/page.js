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
      margin: { l: 36, r: 10, t: 8, b: 4 }, xaxis: axis, yaxis: axis,
      hoverlabel: { bgcolor: "var(--card)", bordercolor: "var(--line)", font: { color: "var(--ink)", size: 11 } },
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, font: { size: 10.5 }, bgcolor: "rgba(0,0,0,0)" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--muted)", activecolor: "var(--accent)" },
      updatemenudefaults: {
        bgcolor: "var(--paper)", bordercolor: "var(--line)", font: { size: 12 }, pad: { t: 0, b: 0, l: 0, r: 0 },
      },
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

/** Tell the widgets of a section that somebody has chosen what has this key. */
function choose(place, key) {
  place.dispatchEvent(new CustomEvent("choose", { detail: key, bubbles: true }));
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
  place.on("plotly_click", ({ points }) => choose(place, points[0].customdata));
  place.dataset.drawn = dark.matches ? "dark" : "light";
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) {
      seen.unobserve(target);
      draw(target).catch(trouble);
    }
  }
}, { rootMargin: "400px" });

/** Draw a figure when it comes into view. */
function watchFigure(place) {
  seen.observe(place);
}

function forget(place) {
  seen.unobserve(place);
  if (drawn.delete(place)) window.Plotly.purge(place);
}

function drawWhenSeen() {
  document.querySelectorAll("[data-figure]").forEach(watchFigure);
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
    const numeric = ["number", "signed", "count", "share", "curve"].includes(head.className);
    const before = head.getAttribute("aria-sort");
    const up = before === "none" ? !numeric : before === "descending";
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => row.cells[column].dataset.value;
    body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b), up ? 1 : -1)));
  }));
  body.querySelectorAll("tr[data-key]").forEach((row) => {
    row.addEventListener("click", () => choose(row, row.dataset.key));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(row, row.dataset.key); });
  });
}

// Widgets ------------------------------------------------------------------------------------------------------------

/** Name -> function of a widget's element. */
const WIDGETS = {};
const SPARED = "infra_error"; // the reason of a completion that nobody is to blame for

/** A small table of texts. */
function smallTable({ columns, rows }) {
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...columns.map((text) => make("th", { text, class: "small" })))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text) => make("td", { text })))))));
}

/** The card of what was chosen in its section, in a table or a figure: facts, small tables, a figure. */
WIDGETS.details = async (place) => {
  const cards = await load(place.dataset.source);
  const section = place.closest("section");
  const content = place.querySelector(".content");
  const show = (key) => {
    const card = cards[key];
    if (!card) return;
    place.dataset.shown = key;
    place.querySelector("h3").textContent = card.title;
    const facts = make("dl", { class: "facts" }, ...card.facts.map(([name, value]) =>
      make("div", {}, make("dt", { text: name }), make("dd", { text: value }))));
    const tables = card.tables.map((table) => make("div", {}, make("h4", { text: table.title }), smallTable(table)));
    const figure = card.figure && make("div", { class: "canvas", "data-figure": card.figure, style: "height:300px" });
    content.querySelectorAll("[data-figure]").forEach(forget);
    content.replaceChildren(make("div", { class: "columns" }, facts, figure ?? null, ...tables));
    section.querySelectorAll("tr[data-key]").forEach((row) => row.classList.toggle("chosen", row.dataset.key === key));
    if (figure) watchFigure(figure);
  };
  section.addEventListener("choose", (event) => show(event.detail));
  show(place.dataset.first);
};

const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)}%`);
const signed = (value) => (value === null || value === undefined ? "–" : (value >= 0 ? "+" : "") + value.toFixed(2));
const PAGE = 50;
const VIEWS = { // name -> which items, and in which order
  newest: { keep: () => true, order: (a, b) => b.round - a.round },
  hardest: { keep: (item) => item.n >= 3 && (item.rate ?? 1) > 0, order: (a, b) => ease(a) - ease(b) || b.n - a.n },
  unsolved: { keep: (item) => item.rate === 0, order: (a, b) => b.n - a.n || b.round - a.round },
  refused: { keep: (item) => item.kind === "refused", order: (a, b) => b.round - a.round },
};
const RATES = {
  0: (rate) => rate === 0, low: (rate) => rate !== null && rate <= 0.25, mid: (rate) => rate >= 0.25 && rate <= 0.75,
  high: (rate) => rate >= 0.75, 1: (rate) => rate === 1, none: (rate) => rate === null,
};

function ease(item) {
  return item.rate ?? item.reward ?? Infinity;
}

/** All that can be searched of an item, in small letters. */
function haystack(item) {
  item.words ??= [item.id, item.author, item.type, ...Object.values(item.fields ?? {}), item.proposal?.c, item.proposal?.x,
    item.proposal?.d, ...item.attempts.flatMap((attempt) => [attempt.c, attempt.x, attempt.d, attempt.m])]
    .filter(Boolean).join("\n").toLowerCase();
  return item.words;
}

/** The list of tasks, prompts and refused proposals: filters, quick views, and each with all attempts when opened. */
WIDGETS.items = async (place) => {
  const items = await load(place.dataset.source);
  const form = place.querySelector("form");
  const [head, body] = [place.querySelector("thead"), place.querySelector("tbody")];
  const [more, count] = [place.querySelector(".more"), place.querySelector(".count")];
  const judged = Boolean(form.elements.rate);
  const columns = [
    { title: "round", class: "count", value: (item) => item.round },
    ...(items.some((item) => item.author) ? [{ title: "author", value: (item) => item.author ?? "" }] : []),
    ...(items.some((item) => item.type) ? [{ title: "type", value: (item) => item.type ?? "" }] : []),
    { title: "attempts", class: "count", value: (item) => item.n },
    ...(judged ? [{ title: "solved", class: "share", value: (item) => item.rate, text: (item) => (item.kind === "refused" ? "refused" : percent(item.rate)) }] : []),
    { title: "reward", class: "signed", value: (item) => item.reward ?? item.proposal?.w ?? null, text: (item) => signed(item.reward ?? item.proposal?.w) },
    { title: "", class: "preview code", value: preview },
  ];
  let view = "newest";
  let sorting = null;
  let shown = [];

  const wanted = () => {
    const field = (name) => form.elements[name]?.value.trim() ?? "";
    const words = field("words").toLowerCase().split(/\s+/).filter(Boolean);
    const [from, to] = [Number(field("from")) || 0, Number(field("to")) || Infinity];
    const kind = view === "refused" ? "refused" : field("kind") || items.find((item) => item.kind !== "refused")?.kind || "refused";
    const rate = RATES[field("rate")] ?? (() => true);
    return items.filter((item) => item.kind === kind && (!field("author") || item.author === field("author"))
      && (!field("type") || item.type === field("type")) && item.round <= to && (item.last >= from || item.round >= from)
      && rate(item.rate) && VIEWS[view].keep(item) && words.every((word) => haystack(item).includes(word)));
  };
  const fill = (upTo) => {
    for (const item of shown.slice(body.querySelectorAll("tr.head").length, upTo)) {
      const row = make("tr", { class: "head", tabindex: "0", "aria-expanded": "false" }, ...columns.map((column) =>
        make("td", { class: column.class, text: column.text ? column.text(item) : String(column.value(item) ?? "–") })));
      const toggle = () => {
        const open = row.classList.toggle("open");
        row.setAttribute("aria-expanded", String(open));
        if (open) row.after(make("tr", { class: "body" }, make("td", { colspan: columns.length }, itemCard(item))));
        else row.nextElementSibling.remove();
      };
      row.addEventListener("click", toggle);
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(); });
      body.append(row);
    }
    more.hidden = shown.length <= upTo;
  };
  const refresh = () => {
    const order = sorting
      ? (a, b) => compare(String(sorting.column.value(a) ?? ""), String(sorting.column.value(b) ?? ""), sorting.direction)
      : VIEWS[view].order;
    shown = wanted().sort(order);
    body.replaceChildren();
    fill(PAGE);
    count.textContent = `${shown.length.toLocaleString("en")} found`;
    place.querySelectorAll("[data-view]").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.view === view)));
  };
  head.append(make("tr", {}, ...columns.map((column) => {
    const cell = make("th", { class: column.class, "aria-sort": "none" }, make("button", { type: "button", text: column.title }));
    cell.addEventListener("click", () => {
      const direction = sorting?.column === column ? -sorting.direction : column.class ? -1 : 1;
      sorting = { column, direction };
      head.querySelectorAll("th").forEach((other) => other.setAttribute("aria-sort", "none"));
      cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      refresh();
    });
    return cell;
  })));
  place.querySelectorAll("[data-view]").forEach((button) => button.addEventListener("click", () => {
    view = button.dataset.view;
    sorting = null;
    head.querySelectorAll("th").forEach((other) => other.setAttribute("aria-sort", "none"));
    refresh();
  }));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    if (event.target.name === "kind" && view === "refused") view = "newest";
    refresh();
  });
  let waiting;
  form.elements.words.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, 120); });
  more.addEventListener("click", () => fill(body.querySelectorAll("tr.head").length + PAGE));
  refresh();
  place.dataset.ready = "";
};

/** The first telling lines of an item, without roles of a chat and brackets that stand alone. */
function preview(item) {
  const lines = (Object.values(item.fields ?? {})[0] ?? item.proposal?.d ?? item.proposal?.x ?? item.id).split("\n");
  return lines.map((line) => line.trim()).filter((line) => line && !/^(\[|\]|\[[a-z]+\])$/.test(line)).slice(0, 3).join("  ");
}

function itemCard(item) {
  const field = ([name, text]) => make("div", { class: "field" }, make("h4", { text: name }), make("pre", { text: text || " " }));
  const card = make("div", { class: "item" });
  const known = [item.kind === "task" ? `task ${item.id}` : null, item.author && `by ${item.author}${item.version ? `@${item.version}` : ""}`,
    `round ${item.round}`, item.last > item.round ? `last attempt in round ${item.last}` : null].filter(Boolean);
  card.append(make("p", { class: "how", text: known.join(" · ") }));
  const fields = Object.entries(item.fields ?? {}).filter(([, text]) => text);
  if (fields.length) card.append(make("div", { class: "fields" }, ...fields.map(field)));
  const { proposal } = item;
  if (proposal?.x) {
    const [kind, words] = proposal.x === SPARED ? ["spared", "not judged: the executor failed"] : ["wrong", `refused: ${proposal.x}`];
    card.append(make("p", {}, make("span", { class: `verdict ${kind}`, text: words }), proposal.d ? `: ${proposal.d}` : ""));
  }
  if (proposal) {
    const text = `What ${proposal.m} wrote · ${proposal.t ?? "?"} tokens · reward ${signed(proposal.w)}`;
    const whole = make("details", {}, make("summary", { text }), make("pre", { text: proposal.c ?? "" }));
    whole.open = item.kind === "refused";
    card.append(whole);
  }
  if (item.kind !== "refused") {
    const left = item.n - item.attempts.length;
    const title = `${item.n} attempt${item.n === 1 ? "" : "s"}${left > 0 ? `, the newest ${item.attempts.length} here` : ""}`;
    card.append(make("div", { class: "attempts" }, make("h4", { text: title }), ...item.attempts.toReversed().map(attemptRow)));
  }
  return card;
}

function verdict(attempt) {
  if (attempt.x === SPARED) return ["spared", "spared: the executor failed"];
  if (attempt.s === true) return ["solved", "solved"];
  if (attempt.x) return ["refused", `refused: ${attempt.x}`];
  return attempt.s === false ? ["wrong", "wrong"] : ["", `reward ${signed(attempt.w)}`];
}

function attemptRow(attempt) {
  const [kind, words] = verdict(attempt);
  const version = attempt.v === undefined ? "" : `@${attempt.v}`;
  const notes = [`round ${attempt.r}`, attempt.t !== undefined ? `${attempt.t} tokens` : null,
    attempt.w !== undefined && kind ? `reward ${signed(attempt.w)}` : null,
    attempt.a !== undefined ? `advantage ${signed(attempt.a)}` : null, attempt.o ? `against ${attempt.o}` : attempt.f ? "fill-in" : null,
    attempt.k ?? null, attempt.l === false ? "not learned from" : null, attempt.ws ?? null, attempt.d ?? null].filter(Boolean);
  return make("div", { class: "attempt", "data-verdict": kind },
    make("div", { class: "who" }, make("span", { class: `verdict ${kind}`, text: words }), make("br"), `${attempt.m}${version}`, make("br"), notes.join(" · ")),
    make("pre", { text: attempt.c ?? "" }));
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

/** While a run is watched the page loads itself again, at the same place, unless somebody reads a task or writes in it. */
function reloadLater() {
  const seconds = Number(document.body.dataset.reload);
  if (!seconds) return;
  const key = `scroll of ${location.pathname}`;
  const before = sessionStorage.getItem(key);
  if (before !== null) scrollTo(0, Number(before));
  setInterval(() => {
    if (document.activeElement?.matches("input, select") || document.querySelector("tr.open")) return;
    if (!getSelection().isCollapsed) return;
    sessionStorage.setItem(key, String(scrollY));
    location.reload();
  }, 1000 * seconds);
}

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
