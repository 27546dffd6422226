for (const button of all("[data-csv]")) {
  button.addEventListener("click", () => {
    const key = button.dataset.csv;
    const whole = JSON.parse(document.getElementById("payload")?.textContent || "{}");
    if (key in whole) save(`${key}.csv`, whole[key]); // those of charts are saved by their own script
  });
}
const filter = document.getElementById("filter");
if (filter) filter.addEventListener("input", () => {
  const wanted = filter.value.trim().toLowerCase();
  for (const row of all("tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  for (const mark of all(".mark")) mark.classList.toggle("out", ![mark.dataset.name, mark.dataset.row].join(" ").toLowerCase().includes(wanted));
});
