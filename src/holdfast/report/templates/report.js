(() => {
  let payload = null;

  const fill = (root) => {
    for (const img of all("img[data-picture]:not([src])", root)) {
      img.addEventListener("load", () => img.classList.toggle("sharp", img.naturalWidth <= 64));
      img.src = payload.pictures[img.dataset.picture];
    }
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
    for (const button of all("[data-csv]")) {
      button.addEventListener("click", () => save(`${button.dataset.csv}.csv`, csvOf(document.getElementById(button.dataset.csv))));
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
