// Parts that scroll are landmarks, all of one name unless somebody names them.
addEventListener("load", () => {
  "use strict";
  document.querySelectorAll(".simplebar-content-wrapper").forEach((part, n) => {
    const menu = part.closest("#nav-sidebar-apps");
    part.setAttribute("aria-label", menu ? "Menu" : "Table " + n);
  });
});
