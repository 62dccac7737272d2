/* What Dash calls in the browser: functions of the namespace "ddprof", which the scripts of the pages add. */
window.dash_clientside = window.dash_clientside || {};
ddprof.callbacks = window.dash_clientside.ddprof = window.dash_clientside.ddprof || {};
