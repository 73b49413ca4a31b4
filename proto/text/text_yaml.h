/* text_yaml.h - YAML text to libyaml's tree of nodes, bounded before anything costs memory or time.
 *
 * Any thread; no I/O. Bounds: TEXT_YAML_BYTES_MAX of text, TEXT_YAML_DEPTH_MAX levels, both checked
 * before the composer (which is quadratic in depth) sees the text. */
#pragma once
#include "proto/text/problem_list.h"
#include <yaml.h>

enum { TEXT_YAML_BYTES_MAX = 1 << 20, TEXT_YAML_DEPTH_MAX = 32, TEXT_YAML_NODES_MAX = 100000 };

/* True: *doc holds one document, possibly without a root; free it with yaml_document_delete. False:
 * the problem is in the list. */
bool text_yaml_compose(const char *text, size_t len, yaml_document_t *doc,
                       struct problem_list *problems);
