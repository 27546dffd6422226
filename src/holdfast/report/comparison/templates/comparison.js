for (const button of all("[data-csv]")) {
  button.addEventListener("click", () => {
    const key = button.dataset.csv;
    const whole = JSON.parse(document.getElementById("payload").textContent);
    save(`${key}.csv`, key in whole ? whole[key] : csvOf(document.getElementById(key)));
  });
}
