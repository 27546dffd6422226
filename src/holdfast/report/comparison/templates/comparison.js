for (const button of all('[data-csv="all"]')) {
  button.addEventListener("click", () => save("all.csv", JSON.parse(document.getElementById("payload").textContent).all));
}
