// Draws the OpenAPI document in the colours of the page around it.
(function () {
  "use strict";
  const place = document.getElementById("reference");
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  const sans = colour("sans");
  const mono = colour("mono");
  Redoc.init(place.dataset.document, {
    hideDownloadButton: true,
    nativeScrollbars: true,
    expandResponses: "200,201",
    sortRequiredPropsFirst: true,
    hideHostname: false,
    theme: {
      spacing: { unit: 4, sectionVertical: 24 },
      breakpoints: { medium: "1100px", large: "1500px" },
      colors: {
        primary: { main: colour("accent") },
        success: { main: colour("good") },
        error: { main: colour("bad") },
        warning: { main: colour("wait") },
        gray: { 50: colour("sunken"), 100: colour("hair") },
        border: { dark: colour("hair-strong"), light: colour("hair") },
        text: { primary: colour("ink"), secondary: colour("ink-soft") },
        http: { get: colour("good"), post: colour("accent"), put: colour("wait"), patch: colour("wait"), delete: colour("bad") },
      },
      schema: { linesColor: colour("hair-strong"), typeNameColor: colour("ink-soft"), requireLabelColor: colour("bad"), nestedBackground: colour("sunken"), arrow: { color: colour("ink-soft") } },
      typography: {
        fontSize: "14px", lineHeight: "1.5", fontFamily: sans, optimizeSpeed: false,
        headings: { fontFamily: sans, fontWeight: "620" },
        code: { fontFamily: mono, fontSize: "13px", color: colour("ink"), backgroundColor: colour("sunken"), wrap: true },
        links: { color: colour("accent"), visited: colour("accent"), hover: colour("accent") },
      },
      sidebar: { width: "240px", backgroundColor: colour("ground"), textColor: colour("ink"), activeTextColor: colour("accent") },
      rightPanel: { backgroundColor: colour("sunken"), width: "38%", textColor: colour("ink") },
      codeBlock: { backgroundColor: colour("raised") },
    },
  }, place);
})();
