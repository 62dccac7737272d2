/* Tables of the file that are tools. */
(function () {
  "use strict";
  document.querySelectorAll("table.tool").forEach((table) => window.ddprof.tableTool(table.parentElement, table));
})();
