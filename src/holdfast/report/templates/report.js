"use strict";
(() => {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const narrow = matchMedia("(max-width: 560px)");
  const shown = new Map(); // chart id -> index of the view on display

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
    const view = payload.charts[id][shown.get(id)];
    Plotly.react(id, structuredClone(view.data), themed(view), { responsive: true, displayModeBar: false });
  };

  const first = (id) => {
    if (!shown.has(id)) {
      shown.set(id, 0);
      draw(id);
    }
  };

  const charts = [...document.querySelectorAll(".chart")];
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      near.unobserve(entry.target);
      first(entry.target.id);
    }
  }, { rootMargin: "600px" });
  charts.forEach((chart) => near.observe(chart));
  addEventListener("beforeprint", () => charts.forEach((chart) => first(chart.id)));
  for (const query of [matchMedia("(prefers-color-scheme: dark)"), narrow]) {
    query.addEventListener("change", () => [...shown.keys()].forEach(draw));
  }

  for (const button of document.querySelectorAll("[data-chart]")) {
    button.addEventListener("click", () => {
      for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
      shown.set(button.dataset.chart, Number(button.dataset.view));
      draw(button.dataset.chart);
    });
  }

  const fill = (root) => {
    for (const img of root.querySelectorAll("img[data-picture]:not([src])")) img.src = payload.pictures[img.dataset.picture];
  };
  document.querySelectorAll(".strip").forEach(fill);
  document.querySelectorAll(".deck:not([hidden])").forEach(fill);
  for (const select of document.querySelectorAll("[data-gallery]")) {
    const turn = () => {
      for (const deck of document.querySelectorAll(`[data-deck="${select.dataset.gallery}"]`)) {
        deck.hidden = deck.id !== `${select.dataset.gallery}-deck-${select.value}`;
        if (!deck.hidden) fill(deck);
      }
    };
    select.addEventListener("change", turn);
    turn(); // browsers restore the choice on reload
  }
  for (const box of document.querySelectorAll("[data-overlay]")) {
    const lay = () => box.closest(".gallery").classList.toggle("overlay", box.checked);
    box.addEventListener("change", lay);
    lay();
  }
})();
