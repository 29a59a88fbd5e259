// Draws the OpenAPI document; its look is in reference.css. Nothing is sent from here: requests need a key,
// and a key has no place in a browser.
(function () {
  "use strict";
  const place = document.getElementById("reference");
  // It is drawn as a page of its own; inside of ours it has no main part, and its tags come below our title.
  new MutationObserver(() => {
    place.querySelectorAll("main:not([role])").forEach((main) => main.setAttribute("role", "group"));
    place.querySelectorAll("h3.opblock-tag:not([aria-level])").forEach((tag) => tag.setAttribute("aria-level", "2"));
  }).observe(place, { childList: true, subtree: true });
  SwaggerUIBundle({
    url: place.dataset.document,
    domNode: place,
    deepLinking: true,
    docExpansion: "none",
    defaultModelsExpandDepth: -1,
    defaultModelExpandDepth: 3,
    filter: true,
    supportedSubmitMethods: [],
    syntaxHighlight: false,
    validatorUrl: null,
    // There is one server, and the page names it: no unlabelled choice of servers.
    plugins: [() => ({ wrapComponents: { ServersContainer: () => () => null } })],
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
  });
})();
