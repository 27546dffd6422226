"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const narrow = matchMedia("(max-width: 560px)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shown = new Map(); // chart id -> index of the view on display
  const waiting = []; // charts to draw, one at a time, so that the page stays responsive
  let payload = null;

  const themed = (view) => {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const line = style.getPropertyValue("--line").trim();
    const layout = structuredClone(view.layout);
    Object.assign(layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false, autosize: true });
    layout.font = { family: getComputedStyle(document.body).fontFamily, size: narrow.matches ? 11 : 13, color: ink };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      Object.assign(layout[name], { gridcolor: line, zerolinecolor: ink, linecolor: line, fixedrange: true });
      if (layout[name].title) layout[name].title.font = { size: layout.font.size };
    }
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: ink, font: { color: style.getPropertyValue("--card").trim() } };
    return layout;
  };

  const draw = (id) => {
    if (!window.Plotly) { // its source is read when the first chart is due, after the words are on the screen
      const script = document.createElement("script");
      script.textContent = document.getElementById("plotly").textContent;
      document.head.append(script);
    }
    const view = payload.charts[id][shown.get(id)];
    Plotly.react(id, structuredClone(view.data), themed(view), { responsive: true, displayModeBar: false });
  };

  const next = () => {
    draw(waiting.shift());
    if (waiting.length) setTimeout(next);
  };

  const first = (id) => {
    if (shown.has(id)) return;
    shown.set(id, 0);
    if (waiting.push(id) === 1) setTimeout(next);
  };

  const fill = (root) => {
    for (const img of all("img[data-picture]:not([src])", root)) {
      img.addEventListener("load", () => img.classList.toggle("sharp", img.naturalWidth <= 64));
      img.src = payload.pictures[img.dataset.picture];
    }
  };

  const save = (name, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  const cell = (tag, text, scope) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (scope) made.scope = scope;
    return made;
  };

  const write = (place) => { // a table of numbers, when it is opened
    const rows = payload.numbers[place.dataset.numbers];
    const kept = payload.number_columns.map((_, i) => i).filter((i) => rows.some((row) => row[i] !== "–"));
    const table = document.createElement("table");
    table.createTHead().insertRow().append(...kept.map((i) => cell("th", payload.number_columns[i], "col")));
    const body = table.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      if (row[payload.number_columns.length]) line.className = "control";
      line.append(...kept.map((i) => cell(i ? "td" : "th", row[i], i ? "" : "row")));
    }
    place.replaceChildren(table);
  };

  const dialog = document.getElementById("large");
  let slides = [];
  let at = 0;
  const turn = (step) => {
    at = (at + step + slides.length) % slides.length;
    const slide = slides[at];
    const copy = slide.cloneNode(true);
    for (const button of all("button.pair", copy)) { // a picture in the dialog is no button
      const pair = document.createElement("div");
      pair.className = "pair";
      pair.append(...button.childNodes);
      button.replaceWith(pair);
    }
    all(".bar", copy).forEach((bar) => bar.remove());
    document.getElementById("large-title").textContent = slide.dataset.slide;
    dialog.querySelector(".stage").replaceChildren(...copy.childNodes);
  };
  const enlarge = (slide) => {
    const deck = slide.closest(".deck");
    slides = all("[data-slide]", deck).filter((other) => other.offsetParent);
    at = slides.indexOf(slide);
    dialog.classList.toggle("overlay", deck.closest(".gallery").classList.contains("overlay"));
    turn(0);
    dialog.showModal();
  };
  dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  for (const button of all("[data-step]", dialog)) button.addEventListener("click", () => turn(Number(button.dataset.step)));
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) turn(step);
  });

  const start = () => {
    if (payload) return;
    payload = JSON.parse(document.getElementById("payload").textContent);
    const charts = all(".chart");
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((e) => e.isIntersecting)) {
        near.unobserve(entry.target);
        first(entry.target.id);
      }
    }, { rootMargin: "600px" });
    charts.forEach((chart) => near.observe(chart));
    addEventListener("beforeprint", () => {
      for (const chart of charts.filter((c) => !shown.has(c.id))) {
        shown.set(chart.id, 0);
        draw(chart.id);
      }
    });
    for (const query of [dark, narrow]) {
      query.addEventListener("change", () => [...shown.keys()].filter((id) => !waiting.includes(id)).forEach(draw));
    }
    for (const button of all("[data-chart]")) {
      button.addEventListener("click", () => {
        for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
        shown.set(button.dataset.chart, Number(button.dataset.view));
        if (!waiting.includes(button.dataset.chart)) draw(button.dataset.chart);
      });
    }
    for (const button of all("[data-csv]")) {
      button.addEventListener("click", () => save(...payload.tables[button.dataset.csv]));
    }
    for (const place of all("[data-numbers]")) {
      place.closest("details").addEventListener("toggle", () => write(place), { once: true });
    }
    all(".strip").forEach(fill);
    for (const select of all("[data-gallery]")) {
      const show = () => {
        for (const deck of all("[data-deck]", select.closest(".gallery"))) {
          deck.hidden = deck.dataset.deck !== select.value;
          if (!deck.hidden) fill(deck);
        }
      };
      select.addEventListener("change", show);
      show(); // browsers restore the choice on reload
    }
    for (const box of all("[data-overlay]")) {
      const lay = () => box.closest(".gallery").classList.toggle("overlay", box.checked);
      box.addEventListener("change", lay);
      lay();
    }
    for (const slide of all("[data-slide]")) {
      for (const part of all("[data-open], .halves", slide)) part.addEventListener("click", () => enlarge(slide));
    }
  };
  requestAnimationFrame(() => setTimeout(start)); // after the words have been painted
  setTimeout(start, 400); // where nothing is painted, as in a tab behind others
})();
