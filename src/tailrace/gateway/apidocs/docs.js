// Starts Swagger UI. It is a file of its own, because the page's policy allows no script in the page.
globalThis.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis],
  deepLinking: true,
  showExtensions: true,
  showCommonExtensions: true,
  displayRequestDuration: true,
  // By default a server of others would be asked whether the document is valid.
  validatorUrl: null,
});
