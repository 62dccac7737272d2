/* Tables of the file that are tools. */
document.querySelectorAll("table.tool").forEach((table) => ddprof.tableTool(table.parentElement, table));
