// Tables that sort by the heading that was clicked: numbers from the highest, words from A.

function sortBy(table, place, direction) {
  const body = table.tBodies[0];
  const order = (row) => row.cells[place].dataset.order;
  const sign = direction === "ascending" ? 1 : -1;
  const rows = [...body.rows].sort((a, b) => {
    const [left, right] = [order(a), order(b)];
    if (left === undefined || right === undefined) {
      return (left === undefined) - (right === undefined);
    }
    const numbers = Number(left) - Number(right);
    return sign * (Number.isNaN(numbers) ? left.localeCompare(right) : numbers);
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.querySelectorAll("thead th")];
  headings.forEach((heading, place) => {
    heading.querySelector("button").addEventListener("click", () => {
      const first = heading.classList.contains("number") ? "descending" : "ascending";
      const second = first === "ascending" ? "descending" : "ascending";
      const direction = heading.getAttribute("aria-sort") === first ? second : first;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", direction);
      sortBy(table, place, direction);
    });
  });
}
