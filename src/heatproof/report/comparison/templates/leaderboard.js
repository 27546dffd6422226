(() => {
  const said = document.getElementById("said");
  const value = (row, column, numeric) => {
    const text = row.cells[column].dataset.by;
    return text === "" ? null : numeric ? Number(text) : text;
  };
  for (const table of document.querySelectorAll("[data-sortable]")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = head.firstElementChild;
      button.addEventListener("click", () => {
        const numeric = button.dataset.numeric === "yes";
        const before = head.getAttribute("aria-sort");
        // scores are read from the top, ranks and names from the start
        const first = numeric && column > 0 ? "descending" : "ascending";
        const way = before === "none" ? first : before === "ascending" ? "descending" : "ascending";
        const sign = way === "ascending" ? 1 : -1;
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => {
          const [x, y] = [value(a, column, numeric), value(b, column, numeric)];
          if (x === null || y === null) return (x === null) - (y === null); // what is missing goes last, either way
          return sign * (numeric ? x - y : x.localeCompare(y));
        });
        table.tBodies[0].append(...rows);
        heads.forEach((other) => other.setAttribute("aria-sort", other === head ? way : "none"));
        said.textContent = `Sorted by ${button.textContent}, ${way}`;
      });
    });
  }
})();
