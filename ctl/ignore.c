#include "ctl/ignore.h"
#include "base/mem.h"
#include <fnmatch.h>
#include <string.h>

struct rule {
    char *glob;
    bool back, dirs_only, whole_path;
};
struct ignore {
    struct rule *rules;
    size_t count;
};

static const char built_in[] = ".git\n__pycache__\n*.pyc\n/.rondoignore\n";

static void add_rule(struct ignore *ignore, const char *line, size_t len)
{
    struct rule rule = {0};
    while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        len--;
    if (len > 0 && line[0] == '!') {
        rule.back = true;
        line++;
        len--;
    }
    if (len > 0 && line[len - 1] == '/') {
        rule.dirs_only = true;
        len--;
    }
    if (len == 0 || line[0] == '#' || ignore->count >= IGNORE_LINES_MAX)
        return;
    rule.whole_path = memchr(line, '/', len) != NULL;
    if (line[0] == '/') {
        line++;
        len--;
    }
    rule.glob = mem_printf("%.*s", (int)len, line);
    ignore->rules = mem_resize(ignore->rules, ignore->count + 1, sizeof(struct rule));
    ignore->rules[ignore->count++] = rule;
}

static void add_lines(struct ignore *ignore, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        add_rule(ignore, text, len);
        text += len + (text[len] == '\n');
    }
}

struct ignore *ignore_create(const char *text)
{
    struct ignore *ignore = NEW(struct ignore);
    add_lines(ignore, built_in);
    if (text)
        add_lines(ignore, text);
    return ignore;
}

void ignore_destroy(struct ignore *ignore)
{
    if (!ignore)
        return;
    for (size_t i = 0; i < ignore->count; i++)
        mem_free(ignore->rules[i].glob);
    mem_free(ignore->rules);
    mem_free(ignore);
}

bool ignore_match(const struct ignore *ignore, const char *path, bool is_dir)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = ignore->count; i > 0; i--) {
        const struct rule *rule = &ignore->rules[i - 1];
        if (rule->dirs_only && !is_dir)
            continue;
        if (fnmatch(rule->glob, rule->whole_path ? path : name,
                    rule->whole_path ? FNM_PATHNAME : 0) == 0)
            return !rule->back;
    }
    return false;
}
