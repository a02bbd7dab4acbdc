// Light or dark: what the system prefers, until the button says otherwise.

(() => {
  const root = document.documentElement;
  const button = byId("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";

  function label() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  }

  // A page from disk may be refused storage; then the choice lasts as long as the page.
  try {
    const kept = localStorage.getItem("upright-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch {}
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("upright-theme", root.dataset.theme);
    } catch {}
    repaintAll();
  });
  repaint(label);
  label();
})();
