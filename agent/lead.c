/* lead.c - see lead.h. */
#include "agent/lead.h"
#include "base/mem.h"
#include <string.h>

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);

    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static bool hints_at_torch(const char *word)
{
    return strstr(word, "python") || strstr(word, "torch") || ends_with(word, ".py") ||
           ends_with(word, ".sh");
}

static bool is_shell(const char *program)
{
    static const char *const shells[] = {"sh", "bash", "dash", "zsh", "ksh", "env"};
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;

    for (size_t i = 0; i < COUNT_OF(shells); i++)
        if (strcmp(name, shells[i]) == 0)
            return true;
    return false;
}

enum lead lead_of_command(char *const *argv, size_t count)
{
    if (count == 0)
        return LEAD_NONE;
    for (size_t i = 0; i < count; i++)
        if (hints_at_torch(argv[i]))
            return LEAD_NEEDED;
    if (is_shell(argv[0]) || !strchr(argv[0], '/')) /* by PATH: it may be anything */
        return LEAD_NEEDED;
    return LEAD_LOOK;
}

bool lead_of_head(const char *bytes, size_t len)
{
    return len < 4 || memcmp(bytes, "\177ELF", 4) != 0;
}
