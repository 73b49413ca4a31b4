/* page.h - the pages of docs/ that are printed from tables, and what prints them.
 *
 * One thread. Each function appends a whole page. Proto sources are read for their comments, which
 * descriptors do not carry; a missing comment is an empty cell. */
#pragma once
#include "base/text.h"
#include <protobuf-c/protobuf-c.h>

struct page_sources {
    char *job, *control, *agent; /* text of job.proto and so on */
};
void page_states(const struct page_sources *sources, struct text *out);
void page_rondod(const struct page_sources *sources, struct text *out);
void page_rondo_agent(const struct page_sources *sources, struct text *out);
void page_rondoctl(const struct page_sources *sources, struct text *out);
void page_job_file(const struct page_sources *sources, struct text *out);
void page_api(const struct page_sources *sources, struct text *out);
void page_bench(const struct page_sources *sources, struct text *out);

/* The comment behind "name = N" within the block of that head, "message Role", of the source. */
void page_comment(const char *source, const char *head, const char *name, struct text *out);
/* A table cell: bars are escaped. */
void page_cell(const char *words, struct text *out);
/* "text", "list of Role", "RUN_ON or STOP". */
void page_type(const ProtobufCFieldDescriptor *field, struct text *out);
