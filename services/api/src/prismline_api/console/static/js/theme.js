// The theme: light, dark, or that of the operating system. The browser stores it. Runs before the page is drawn.
(() => {
  const THEMES = ["system", "light", "dark"];
  const LABELS = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  const stored = () => {
    try {
      const theme = localStorage.getItem("prismline-theme");
      return THEMES.includes(theme) ? theme : "system";
    } catch {
      return "system"; // the browser does not allow storage
    }
  };
  const apply = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };

  let theme = stored();
  apply(theme);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      button.textContent = LABELS[theme];
    };
    button.hidden = false;
    show();
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try {
        localStorage.setItem("prismline-theme", theme);
      } catch {
        /* the theme is lost with the page */
      }
      apply(theme);
      show();
      document.dispatchEvent(new Event("prismline-theme"));
    });
  });
})();
