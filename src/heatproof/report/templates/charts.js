"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const save = (name, text) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
const csvOf = (chart) => { // what the marks of a chart carry, one row each; text that a spreadsheet would run is inert
  const columns = ["name", "method", "row", "column", "x", "xLow", "xHigh", "value", "low", "high", "said"];
  const numbers = new Set(["x", "xLow", "xHigh", "value", "low", "high"]);
  const rows = all(".mark", chart).map((mark) => {
    const title = mark.closest(".plot").querySelector(".pt");
    return { plot: title ? title.textContent.trim() : "", ...mark.dataset };
  });
  const kept = ["plot", ...columns.filter((name) => rows.some((row) => row[name]))];
  const cell = (row, name) => {
    const text = row[name] || "";
    const safe = !numbers.has(name) && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const head = kept.map((name) => name.replace(/[A-Z]/, (letter) => `_${letter.toLowerCase()}`));
  return [head, ...rows.map((row) => kept.map((name) => cell(row, name)))].map((row) => `${row.join(",")}\n`).join("");
};
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  const number = (text) => {
    const value = Number(text);
    return value.toFixed(Math.abs(value) < 0.0995 && value ? 3 : 2).replace("-", "−");
  };
  const said = ({ name, value, low, high, x, said: more }) => {
    const ends = low && high ? ` [${number(low)}, ${number(high)}]` : "";
    const at = x && !/^0?$/.test(x) ? `at ${Number(x).toPrecision(3) / 1}` : "";
    return [`${name}: ${number(value)}${ends}`, at, more].filter(Boolean).join("\n");
  };
  const light = (method) => {
    document.body.classList.toggle("lighting", Boolean(method));
    for (const mark of all(".lit[data-method]")) mark.classList.remove("lit");
    if (!method) return;
    for (const mark of all("[data-method]")) if (mark.dataset.method === method) mark.classList.add("lit");
  };
  const show = (mark) => {
    tip.hidden = !mark;
    light(mark ? mark.dataset.method : "");
    if (!mark) return;
    tip.textContent = said(mark.dataset);
    const shape = mark.querySelector("circle:last-of-type, rect:last-of-type, path") || mark;
    const place = shape.getBoundingClientRect();
    const left = Math.min(Math.max(8, place.left + place.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
    const above = place.top - tip.offsetHeight - 8;
    Object.assign(tip.style, { left: `${left}px`, top: `${above > 4 ? above : place.bottom + 8}px` });
  };
  addEventListener("pointerover", (event) => {
    const mark = event.target.closest ? event.target.closest(".mark") : null;
    if (mark || !document.querySelector(".mark.at")) show(mark);
    const row = !mark && event.target.closest ? event.target.closest("[data-method]") : null;
    if (row) light(row.dataset.method);
  });
  const leave = () => all(".mark.at").forEach((mark) => mark.classList.remove("at"));
  addEventListener("keydown", (event) => {
    const walk = event.target;
    if (!walk.matches || !walk.matches(".walk")) return;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { leave(); show(null); }
    if (!step) return;
    event.preventDefault();
    const marks = all(".mark", walk);
    const next = marks[Math.min(Math.max(marks.findIndex((mark) => mark.classList.contains("at")) + step, 0), marks.length - 1)];
    leave();
    if (!next) return;
    next.classList.add("at");
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(next);
  });
  addEventListener("focusout", (event) => { if (event.target.matches && event.target.matches(".walk")) { leave(); show(null); } });
  addEventListener("click", (event) => {
    const button = event.target.closest("[data-sort], [data-csv]");
    if (!button) return;
    const chart = button.dataset.csv && document.getElementById(button.dataset.csv);
    if (chart) save(`${button.dataset.csv}.csv`, csvOf(chart));
    if (!("sort" in button.dataset)) return;
    // the rows of all plots beside it move along, so that they stay comparable
    const rows = (plot) => all(".mark[data-y]", plot);
    const pressed = button.getAttribute("aria-pressed") === "true";
    const plots = button.closest(".plots");
    for (const other of all("[data-sort]", plots)) other.setAttribute("aria-pressed", String(other === button && !pressed));
    const value = new Map(rows(button.closest(".plot")).map((row) => [row.dataset.name, Number(row.dataset.value ?? -Infinity)]));
    for (const plot of all(".plot", plots)) {
      const places = rows(plot).map((row) => Number(row.dataset.y)).sort((a, b) => a - b);
      const sorted = pressed ? rows(plot) : rows(plot).sort((a, b) => (value.get(b.dataset.name) ?? -1e9) - (value.get(a.dataset.name) ?? -1e9));
      sorted.forEach((row, i) => row.setAttribute("transform", `translate(0 ${places[i] - Number(row.dataset.y)})`));
    }
  });
})();
