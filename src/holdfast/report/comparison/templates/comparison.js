"use strict";
(() => {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const narrow = matchMedia("(max-width: 560px)");
  const shown = new Map(); // chart id -> index of the view on display

  const themed = (view) => {
    const style = getComputedStyle(document.documentElement);
    const [ink, line, card] = ["--ink", "--line", "--card"].map((name) => style.getPropertyValue(name).trim());
    const layout = structuredClone(view.layout);
    Object.assign(layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false, autosize: true });
    layout.font = { family: getComputedStyle(document.body).fontFamily, size: narrow.matches ? 11 : 13, color: ink };
    for (const axis of [layout.xaxis, layout.yaxis]) {
      Object.assign(axis, { gridcolor: line, zerolinecolor: ink, linecolor: line, fixedrange: true });
      if (axis.title) axis.title.font = { size: layout.font.size };
    }
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: ink, font: { color: card } };
    return layout;
  };
  const draw = (id) => {
    const view = payload.charts[id][shown.get(id)];
    document.getElementById(id).style.height = `${view.height}px`;
    Plotly.react(id, structuredClone(view.data), themed(view), { responsive: true, displayModeBar: false });
  };
  const first = (chart) => {
    if (!shown.has(chart.id)) {
      shown.set(chart.id, 0);
      draw(chart.id);
    }
  };
  const charts = [...document.querySelectorAll(".chart")];
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      near.unobserve(entry.target);
      first(entry.target);
    }
  }, { rootMargin: "600px" });
  charts.forEach((chart) => near.observe(chart));
  addEventListener("beforeprint", () => charts.forEach(first));
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
  for (const button of document.querySelectorAll("[data-csv]")) {
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([payload.data[button.dataset.csv]], { type: "text/csv" }));
      link.download = `${button.dataset.csv}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
})();
