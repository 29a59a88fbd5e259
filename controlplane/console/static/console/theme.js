// Runs before the first paint: the chosen theme, and the viewer's time zone for the server.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  try {
    // What was chosen in this browser, then what the person or the workspace prefers.
    var theme = localStorage.getItem("theme") || root.dataset.preferred;
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch (e) {
    root.dataset.storage = "none";
  }
  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = "zone=" + zone + "; path=/; max-age=31536000; samesite=lax";
})();
