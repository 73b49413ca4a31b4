/* status_page.c - the index page: what there is here, in plain HTML. */
#include "daemon/status_request.h"

static const char status_page_html[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Rondo</title>"
    "<style>body{font:16px/1.5 sans-serif;max-width:42em;margin:2em auto;padding:0 1em}"
    "td{padding:.1em 1em .1em 0}</style><h1>Rondo</h1><table>"
    "<tr><td><a href=\"/api/v1/status\">/api/v1/status</a><td>the cluster in short"
    "<tr><td><a href=\"/api/v1/jobs\">/api/v1/jobs</a><td>jobs, newest first: ?active=1 state= "
    "project= name= before= limit="
    "<tr><td>/api/v1/jobs/&lt;number&gt;<td>one job with its attempts, workers, checkpoints, events"
    "<tr><td><a href=\"/api/v1/nodes\">/api/v1/nodes</a><td>nodes and what is used on them"
    "<tr><td><a href=\"/events\">/events</a><td>events as they are committed: ?after= job="
    "<tr><td><a href=\"/metrics\">/metrics</a><td>for Prometheus"
    "<tr><td><a href=\"/healthz\">/healthz</a><td>200 while the daemon's loop runs"
    "<tr><td><a href=\"/readyz\">/readyz</a><td>200 when it can work, else 503 and why"
    "</table></html>\n";

void status_page(struct status_request *request)
{
    text_add(&request->body, status_page_html);
    status_request_text(request, 200, "text/html; charset=utf-8");
}
