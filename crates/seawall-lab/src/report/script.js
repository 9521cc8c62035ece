// Niceties only: the page reads the same without them.
for (const button of document.querySelectorAll("button.copy")) {
  const text = button.closest("figure").querySelector("pre").textContent;
  button.hidden = false;
  button.addEventListener("click", () => {
    const done = () => {
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    };
    if (navigator.clipboard) return navigator.clipboard.writeText(text).then(done, () => {});
    const area = document.body.appendChild(document.createElement("textarea"));
    area.value = text;
    area.select();
    if (document.execCommand("copy")) done();
    area.remove();
  });
}
const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
});
