(() => {
  const payload = JSON.parse(document.getElementById("payload").textContent);
  const make = (tag, kind = "", text = "", about = {}) => Object.assign(document.createElement(tag), { className: kind, textContent: text }, about);
  const image = (key, kind, alt = "") => make("img", kind, "", { alt, decoding: "async", src: payload.pictures[key] });
  const within = (root, made) => { root.append(...made.filter(Boolean)); return root; };

  // the proof sheet
  const chosen = new Map(); // sheet -> number of the sample that is shown
  const samples = (sheet) => payload.sheets[sheet.dataset.sheet] || [];
  const nameOf = (cell) => cell.closest("[data-method]").dataset.method;
  const headOf = (sheet, column) => (sheet.querySelector(`.change[data-column="${column}"]`) || all(".change", sheet)[column]).textContent;
  const input = (sample, column, alt) => {
    const [key, now] = sample.inputs[column];
    return within(make("div", key || now ? "tile input" : ""), [key && image(key, "", alt), now && make("span", "why", now)]);
  };
  const tile = (sample, cell, column) => {
    const [map, score, why, under] = sample.cells[cell.dataset.cell.split(",")[0]][column];
    const ground = under || sample.inputs[column][0];
    const drawn = (key) => payload.pictures[key].startsWith("data:image/svg");
    const badge = score && make("span", "badge", score);
    if (badge) badge.style.setProperty("--v", Math.min(Math.max(Number(score.replace("−", "-")), 0), 1));
    return within(make("div", map ? "tile" : "tile gone"), [
      ground && image(ground, drawn(ground) ? "photo line" : "photo"),
      map && image(map, drawn(map) ? "map drawn" : `map ${cell.dataset.kind}`, nameOf(cell)), badge, why && make("span", "why", why.startsWith("now") ? "not scored" : why),
    ]);
  };
  const outline = async (sheet) => { // the edge of the strongest twentieth of every map
    all("canvas", sheet).forEach((old) => old.remove());
    if (!sheet.querySelector('[data-outline][aria-pressed="true"]')) return;
    for (const map of all("td .map", sheet)) {
      await map.decode();
      const [width, height] = [map.naturalWidth, map.naturalHeight];
      const canvas = make("canvas", "", "", { width, height });
      const pen = canvas.getContext("2d", { willReadFrequently: true });
      pen.drawImage(map, 0, 0);
      const grey = pen.getImageData(0, 0, width, height).data.filter((_, i) => i % 4 === 0);
      const strong = Array.from(grey, (v) => (map.classList.contains("signed") ? Math.abs(v - 128) : v));
      const least = Math.max([...strong].sort((a, b) => a - b)[Math.floor(0.95 * strong.length)], 1);
      pen.clearRect(0, 0, width, height);
      strong.forEach((v, i) => {
        const x = i % width;
        const beside = [x ? strong[i - 1] : 0, x < width - 1 ? strong[i + 1] : 0, strong[i - width] || 0, strong[i + width] || 0];
        if (v >= least && Math.min(...beside) < least) pen.fillRect(x, Math.floor(i / width), 1, 1);
      });
      map.after(canvas);
    }
  };
  const draw = (sheet) => {
    const at = chosen.get(sheet);
    const sample = samples(sheet)[at];
    if (!sample) return;
    for (const cell of all("[data-input]", sheet)) cell.replaceChildren(input(sample, cell.dataset.input, `${sample.id}, ${headOf(sheet, cell.dataset.input)}`));
    for (const cell of all("[data-cell]", sheet)) {
      const [row, column] = cell.dataset.cell.split(",");
      const button = make("button", "enlarge", "", { type: "button" });
      button.setAttribute("aria-label", [`${nameOf(cell)}, ${headOf(sheet, column)}`, ...sample.cells[row][column].slice(1, 3).filter(Boolean), "enlarge"].join(", "));
      cell.replaceChildren(within(button, [tile(sample, cell, column)]));
    }
    for (const button of all("[data-pick]", sheet)) button.setAttribute("aria-pressed", String(Number(button.dataset.pick) === at));
    const nearest = at || samples(sheet).length < 2 ? "" : ", a typical sample (median score)";
    const words = sheet.querySelector("[data-said]");
    if (words) words.textContent = `${sample.id}${nearest}${sample.said ? `. The model says ${sample.said}.` : ""}`;
    outline(sheet);
  };
  const prepare = (root) => {
    for (const sheet of all("[data-sheet]", root)) {
      chosen.set(sheet, 0);
      for (const [i, button] of all("[data-pick]", sheet).entries()) button.append("words" in sheet.dataset ? String(i + 1) : image(samples(sheet)[i].inputs[0][0]));
      draw(sheet);
    }
    for (const place of all("[data-numbers]", root)) place.closest("details").addEventListener("toggle", () => write(place), { once: true });
  };

  // all methods of one sample under one change, side by side, with one zoom
  const dialog = document.getElementById("large");
  const stage = dialog.querySelector(".stage");
  let at = null;
  const show = (sheet, column) => {
    at = { sheet, column: Number(column) };
    const sample = samples(sheet)[chosen.get(sheet)];
    const framed = (inside, name) => within(make("figure"), [inside, make("figcaption", "", name)]);
    document.getElementById("large-title").textContent = `${sample.id}, ${headOf(sheet, column)}`;
    const others = all(`[data-cell$=",${column}"]`, sheet).map((cell) => framed(tile(sample, cell, column), nameOf(cell)));
    stage.replaceChildren(framed(input(sample, column, "the input"), "what the model saw"), ...others);
    const size = getComputedStyle(sheet);
    stage.style.setProperty("--ratio", parseFloat(size.getPropertyValue("--wide")) / parseFloat(size.getPropertyValue("--tile")));
    if (!dialog.open) dialog.showModal();
  };
  const step = (by) => {
    const columns = all(".change", at.sheet).map((change, i) => Number(change.dataset.column ?? i));
    show(at.sheet, columns[(columns.indexOf(at.column) + by + columns.length) % columns.length]);
  };
  dialog.querySelector("[data-zoom]").addEventListener("input", (event) => stage.style.setProperty("--z", event.target.value));
  stage.addEventListener("pointermove", (event) => {
    const over = event.target.closest(".tile");
    if (!over) return;
    const box = over.getBoundingClientRect();
    stage.style.setProperty("--px", `${(100 * (event.clientX - box.left)) / box.width}%`);
    stage.style.setProperty("--py", `${(100 * (event.clientY - box.top)) / box.height}%`);
  });
  // a part of the page as it is on the screen, drawn by the browser itself at twice its size
  const imageOf = async (part) => {
    const frame = make("div", "saved");
    frame.append(part.cloneNode(true));
    all(".actions, .pick > div, .foot .actions", frame).forEach((control) => control.remove());
    const body = getComputedStyle(document.body);
    for (const name of ["font-family", "font-size", "color", "background-color", "letter-spacing", "overflow-wrap"]) frame.style.setProperty(name, body.getPropertyValue(name));
    const lineHeight = parseFloat(body.lineHeight) / parseFloat(body.fontSize); // without a unit, so that small print has less
    Object.assign(frame.style, { boxSizing: "border-box", width: `${part.offsetWidth + 32}px`, lineHeight: String(lineHeight) });
    document.body.append(frame); // for a moment, to measure it without its buttons
    const [width, height] = [document.documentElement.clientWidth, Math.ceil(frame.getBoundingClientRect().height)];
    frame.remove();
    const write = (element) => new XMLSerializer().serializeToString(element); // unlike outerHTML it names the namespace of the filters
    const style = make("style", "", document.querySelector("style").textContent);
    const inside = write(style) + write(document.querySelector("svg.unseen")) + write(frame);
    // As wide as the window, so that its rules for phones apply here as well.
    const text = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%"><div xmlns="http://www.w3.org/1999/xhtml">${inside}</div></foreignObject></svg>`;
    const drawn = make("img", "", "", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}` });
    await drawn.decode();
    const shown = Math.min(width, part.offsetWidth + 32);
    const canvas = make("canvas", "", "", { width: 2 * shown, height: 2 * height });
    const pen = canvas.getContext("2d");
    for (const _ of [1, 2]) { // pictures inside may only be ready the second time
      pen.drawImage(drawn, 0, 0, shown, height, 0, 0, 2 * shown, 2 * height);
      await new Promise((ready) => setTimeout(ready, 60));
    }
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  };
  const picture = async (sheet) => save("proof-sheet.png", await imageOf(sheet));
  const say = (button, text) => {
    const words = button.textContent;
    button.textContent = text;
    setTimeout(() => { button.textContent = words; }, 1800);
  };
  const copyPicture = async (button) => { // a file may have no right to the clipboard: then the picture is saved
    const blob = await imageOf(button.closest(".verdict"));
    try {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
      say(button, "Copied");
    } catch {
      save("verdict.png", blob);
      say(button, "Saved as verdict.png");
    }
  };

  // tables: sorted, copied, written when they are opened
  const sort = (head) => {
    const table = head.closest("table");
    const column = [...head.parentNode.children].indexOf(head);
    const rows = all("tbody tr", table);
    const said = (row) => row.children[column].dataset.v;
    const words = rows.some((row) => said(row) !== "" && Number.isNaN(Number(said(row))));
    const value = (row) => (said(row) === "" ? -Infinity : Number(said(row)));
    const down = head.ariaSort ? head.ariaSort === "ascending" : column > 0;
    all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = (a, b) => (down ? -1 : 1) * (words ? said(a).localeCompare(said(b)) : value(a) - value(b));
    table.tBodies[0].append(...rows.sort((a, b) => a.matches(".control") - b.matches(".control") || order(a, b)));
  };
  const tabled = {
    markdown: ([head, ...rows]) => [head, head.map((_, i) => (i > 0 ? "---:" : "---")), ...rows].map((row) => `| ${row.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`),
    latex: ([head, ...rows]) => {
      const safe = (text) => text.replace(/[\\&%$#_{}~^]/g, (c) => ({ "\\": "\\textbackslash{}", "~": "\\~{}", "^": "\\^{}" })[c] || `\\${c}`).replaceAll("−", "$-$").replaceAll("–", "--");
      const line = (row) => `${row.map(safe).join(" & ")} \\\\`;
      return ["% needs booktabs", `\\begin{tabular}{${head.map((_, i) => (i > 0 ? "r" : "l")).join("")}}`, "\\toprule", line(head), "\\midrule", ...rows.map(line), "\\bottomrule", "\\end{tabular}"];
    },
  };
  const cells = (table) => all("tr", table).map((row) => [...row.children].map((cell) => (cell.querySelector("button") || cell).textContent.trim().replace(/\s+/g, " ")));
  const copy = async (button, text) => {
    const area = make("textarea", "unseen", text); // a file may have no right to the clipboard
    await navigator.clipboard.writeText(text).catch(() => { button.after(area); area.select(); document.execCommand("copy"); area.remove(); });
    button.dataset.copied = text;
    const said = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = said; }, 1500);
  };
  const write = (place) => {
    const rows = payload.numbers[place.dataset.numbers];
    const kept = payload.number_columns.map((_, i) => i).filter((i) => rows.some((row) => row[i] !== "–"));
    const line = (row, tag) => within(make("tr", row[payload.number_columns.length] ? "control" : ""), kept.map((i) => (tag === "th" || !i ? make("th", "", row[i], { scope: tag === "th" ? "col" : "row" }) : make(tag, "", row[i]))));
    const table = within(make("table"), [within(make("thead"), [line(payload.number_columns, "th")]), within(make("tbody"), rows.map((row) => line(row, "td")))]);
    place.replaceChildren(table);
  };

  // tabs, subjects and anchors
  const select = (tab) => {
    for (const other of all('[role="tab"]', tab.parentNode)) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).classList.toggle("on", other === tab);
    }
  };
  const open = (key) => {
    const kept = document.querySelector(`template[data-subject="${key}"]`);
    if (kept) {
      const made = kept.content.firstElementChild;
      kept.replaceWith(made);
      prepare(made);
    }
    for (const other of all("[data-shown]")) other.hidden = other.dataset.shown !== key;
    for (const button of all("[data-open]")) button.setAttribute("aria-pressed", String(button.dataset.open === key));
  };
  const arrive = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const subject = all("template[data-subject]").find((one) => name.startsWith(`${one.dataset.subject}-`));
    if (subject) open(subject.dataset.subject);
    const target = name && document.getElementById(name);
    if (!target) return;
    const shown = target.closest("[data-shown][hidden]");
    if (shown) open(shown.dataset.shown);
    const panel = target.closest('[role="tabpanel"]');
    if (panel) select(document.getElementById(panel.getAttribute("aria-labelledby")));
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  const presses = {
    pick: (button, sheet) => { chosen.set(sheet, Number(button.dataset.pick)); draw(sheet); },
    outline: (button, sheet) => { button.ariaPressed = String(button.ariaPressed !== "true"); outline(sheet); },
    save: (button, sheet) => picture(sheet),
    picture: (button) => copyPicture(button),
    by: (button) => sort(button.closest("th")),
    table: (button) => copy(button, tabled[button.dataset.table](cells(button.closest("section").querySelector("table.score"))).join("\n")),
    copy: (button) => copy(button, button.previousElementSibling.textContent),
    open: (button) => { open(button.dataset.open); document.querySelector(`[data-shown="${button.dataset.open}"]`).scrollIntoView({ behavior: "smooth" }); },
    step: (button) => step(Number(button.dataset.step)),
    close: () => dialog.close(),
    tab: (button) => { select(button); history.replaceState(null, "", `#${button.getAttribute("aria-controls")}`); },
  };
  addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) arrive();
    if (event.target === dialog) dialog.close();
    const button = event.target.closest("button");
    if (!button) return;
    const sheet = button.closest("[data-sheet]");
    if (button.matches(".enlarge")) show(sheet, button.closest("[data-cell]").dataset.cell.split(",")[1]);
    for (const [name, press] of Object.entries(presses)) if (name in button.dataset) press(button, sheet);
  });
  addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    if (dialog.open && event.target.type !== "range") step(by);
    const tab = event.target.closest('[role="tab"]');
    if (!tab) return;
    const tabs = all('[role="tab"]', tab.parentNode);
    const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length];
    select(next);
    next.focus();
  });
  const stops = all(".head nav a");
  const mark = () => { // the part of the page that is being read
    const parts = stops.map((stop) => document.getElementById(stop.hash.slice(1))).filter((part) => part && part.offsetParent);
    const here = parts.filter((part) => part.getBoundingClientRect().top < 120).pop() || parts[0];
    for (const stop of stops) stop.ariaCurrent = here && stop.hash === `#${here.id}` ? "true" : null;
  };
  addEventListener("hashchange", arrive);
  addEventListener("scroll", mark, { passive: true });
  const start = () => { if (!chosen.size) prepare(document); arrive(); mark(); };
  requestAnimationFrame(() => setTimeout(start)); // after the words have been painted
  setTimeout(() => { if (!chosen.size) start(); }, 400); // where nothing is painted, as in a tab behind others
})();
